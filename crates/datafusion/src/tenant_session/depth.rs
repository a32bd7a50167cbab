//! Depth of a statement: first of its text, and then of its plan.
//!
//! DataFusion's parser, planner, optimizer and operators call themselves for each level, and so does the code that drops a plan. A level
//! takes up to some kilobytes of stack. So the depth is known before each of them sees a statement. Neither look calls itself.

use std::future::{Future, poll_fn};
use std::pin::pin;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::Dialect;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, Exists, InSubquery, SetComparison, TryCast};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::TenantSqlError;
use super::readings::readings;

/// Links of a text for each level of the plan. `SELECT x FROM t JOIN u ON t.y = u.y` has five links, and its plan four levels.
const LINKS_A_LEVEL: usize = 8;
/// Open brackets around a part of a text.
const BRACKETS_MAX: usize = 32;
/// Readings of tokens by the parser. Of random texts with fewer, the longest took sqlparser 0.62 a third of a second, in a release build on an
/// x86-64 virtual machine. With twice as many readings it takes twice the time.
const READINGS_MAX: u64 = 1 << 20;
/// Parts that a plan may have, after each reference to a common table expression or view is a copy of it.
const PARTS_MAX: usize = 100_000;
/// Levels that each level of a nested type counts as: casts of such types take about 20 KiB of stack for each.
const LEVELS_A_TYPE: usize = 8;
/// Copies that the optimizer makes of an operand of `BETWEEN`, a condition of `CASE` or an argument of `coalesce`, and times that it looks
/// at a subquery.
pub(super) const COPIES: usize = 3;

/// Levels and parts of a plan.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    pub(super) levels: usize,
    /// Nodes and expressions.
    pub(super) parts: usize,
}

/// Polls a future on a stack of its own, so that its callers need none for it.
pub(crate) async fn on_stack<F: Future>(bytes: usize, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| stacker::grow(bytes, || future.as_mut().poll(context))).await
}

/// Parses a text, unless it could parse to a tree of too many levels.
///
/// The parser has no limit of its own here: if it meets one inside brackets, it tries their other readings, in time that doubles with each.
pub(super) fn parse(
    text: &str,
    dialect: Dialect,
    levels_max: usize,
) -> Result<Statement, TenantSqlError> {
    let error = |text: &str| DataFusionError::Plan(text.to_owned());
    let dialect =
        dialect_from_str(dialect).ok_or_else(|| error("the session's dialect has no parser"))?;
    let tokens = Tokenizer::new(dialect.as_ref(), text)
        .tokenize_with_location()
        .map_err(|error| DataFusionError::from(ParserError::from(error)))?;
    if readings(&tokens, dialect.as_ref()) > READINGS_MAX {
        return Err(TenantSqlError::TooManyReadings { max: READINGS_MAX });
    }
    let links_max = levels_max.saturating_mul(LINKS_A_LEVEL);
    check_links(&tokens, links_max, levels_max)?;
    let mut statements = DFParserBuilder::new(tokens)
        .with_dialect(dialect.as_ref())
        .with_recursion_limit(links_max.max(1))
        .build()?
        .parse_statements()?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (None, _) => Err(error("the text has no statement").into()),
        (Some(_), false) => Err(error("the text has several statements: run one at a time").into()),
    }
}

/// Refuses tokens that could parse to a tree of too many levels.
///
/// Each level of a tree takes a keyword, an operator or a bracket, so the tree has no more levels than the text has of these between two
/// commas, together with those before each open bracket. Those that lead past a comma count to the end of their brackets: a set
/// operation, a pipe, and the angle of a type's parameters.
fn check_links(
    tokens: &[TokenWithSpan],
    links_max: usize,
    levels_max: usize,
) -> Result<(), TenantSqlError> {
    // Links before each open bracket, and those that the bracket itself adds: since the last comma, and for good.
    let mut outer = Vec::new();
    let (mut before, mut since_comma, mut for_good) = (0_usize, 0_usize, 0_usize);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                since_comma += 1;
                outer.push((before, since_comma, for_good));
                before += since_comma + for_good;
                (since_comma, for_good) = (0, 0);
                if outer.len() > BRACKETS_MAX {
                    return Err(TenantSqlError::TooDeep { max: BRACKETS_MAX });
                }
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if let Some(opened) = outer.pop() {
                    (before, since_comma, for_good) = opened;
                }
            }
            Token::Comma => since_comma = 0,
            Token::Lt | Token::VerticalBarRightAngleBracket => for_good += 1,
            Token::Word(word) => match word.keyword {
                Keyword::NoKeyword => {}
                Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT | Keyword::MINUS => {
                    for_good += 1
                }
                _ => since_comma += 1,
            },
            Token::Whitespace(_)
            | Token::Period
            | Token::Number(..)
            | Token::SingleQuotedString(_) => {}
            _ => since_comma += 1,
        }
        if before + since_comma + for_good > links_max {
            return Err(TenantSqlError::TooDeep { max: levels_max });
        }
    }
    Ok(())
}

/// Levels and parts of a plan with those of its subqueries and views, each as often as it is referred to.
///
/// The levels of a node's expressions add to those of the nodes below: the optimizer merges expressions of nodes that follow each other.
pub(super) fn check_plan(plan: &LogicalPlan, levels_max: usize) -> Result<Shape, TenantSqlError> {
    let mut shape = Shape::default();
    // The plan, subqueries and views, with the levels above each and its copies; the nodes of one are borrowed from it.
    let mut roots = vec![(plan.clone(), 0, 1_usize)];
    while let Some((root, above, copies)) = roots.pop() {
        let mut nodes = vec![(&root, above)];
        while let Some((node, above)) = nodes.pop() {
            let mut levels = above + 1;
            shape.parts = shape.parts.saturating_add(copies);
            for field in node.schema().fields() {
                levels = levels.max(above + 1 + type_levels(field.data_type(), &mut shape.parts));
            }
            node.apply_expressions(|expr| {
                let mut exprs = vec![(expr, above + 2, copies)];
                while let Some((expr, level, copies)) = exprs.pop() {
                    shape.parts = shape.parts.saturating_add(copies);
                    levels = levels.max(level);
                    if let Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) =
                        expr
                    {
                        levels =
                            levels.max(level + type_levels(field.data_type(), &mut shape.parts));
                    }
                    // The optimizer makes it a cast.
                    if let Expr::ScalarFunction(call) = expr
                        && ["arrow_cast", "arrow_try_cast"].contains(&call.name())
                        && let Some(Expr::Literal(kind, _)) = call.args.get(1)
                        && let Some(Some(kind)) = kind.try_as_str()
                        && let Ok(kind) = kind.parse::<DataType>()
                    {
                        levels = levels.max(level + type_levels(&kind, &mut shape.parts));
                    }
                    if let Expr::Exists(Exists { subquery, .. })
                    | Expr::InSubquery(InSubquery { subquery, .. })
                    | Expr::SetComparison(SetComparison { subquery, .. })
                    | Expr::ScalarSubquery(subquery) = expr
                    {
                        let copies = copies.saturating_mul(COPIES);
                        roots.push((subquery.subquery.as_ref().clone(), level, copies));
                    }
                    expr.apply_children(|child| {
                        let copies = match is_copied(expr, child) {
                            true => copies.saturating_mul(COPIES),
                            false => copies,
                        };
                        exprs.push((child, level + 1, copies));
                        Ok(TreeNodeRecursion::Continue)
                    })?;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            shape.levels = shape.levels.max(levels);
            if shape.levels > levels_max {
                return Err(TenantSqlError::TooDeep { max: levels_max });
            }
            if shape.parts > PARTS_MAX {
                return Err(TenantSqlError::TooLarge { max: PARTS_MAX });
            }
            nodes.extend(node.inputs().into_iter().map(|input| (input, levels)));
            if let LogicalPlan::TableScan(scan) = node
                && let Some(view) = scan.source.get_logical_plan()
            {
                roots.push((view.into_owned(), levels, copies));
            }
        }
    }
    Ok(shape)
}

/// Whether the optimizer writes this part of an expression several times.
pub(super) fn is_copied(expr: &Expr, child: &Expr) -> bool {
    match expr {
        Expr::Between(_) => true,
        Expr::Case(case) => {
            let is_child = |expr: &Expr| std::ptr::eq(expr, child);
            case.when_then_expr.iter().any(|(when, _)| is_child(when))
        }
        Expr::ScalarFunction(function) => ["coalesce", "nvl", "nvl2"].contains(&function.name()),
        _ => false,
    }
}

/// Levels of a nested type, as they count. Adds its parts; stops at the first that is one too many.
fn type_levels(data_type: &DataType, parts: &mut usize) -> usize {
    let mut deepest = 0;
    let mut types = vec![(data_type, 0)];
    while let Some((data_type, level)) = types.pop() {
        deepest = deepest.max(level);
        *parts = parts.saturating_add(1);
        if *parts > PARTS_MAX {
            break;
        }
        match data_type {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _)
            | DataType::Map(field, _) => types.push((field.data_type(), level + 1)),
            DataType::Struct(fields) => {
                types.extend(fields.iter().map(|field| (field.data_type(), level + 1)));
            }
            DataType::Union(fields, _) => {
                types.extend(
                    fields
                        .iter()
                        .map(|(_, field)| (field.data_type(), level + 1)),
                );
            }
            DataType::Dictionary(_, value) => types.push((value, level + 1)),
            DataType::RunEndEncoded(_, values) => types.push((values.data_type(), level + 1)),
            _ => {}
        }
    }
    deepest * LEVELS_A_TYPE
}
