//! How deep a statement nests: first of its text, and then of its plan.
//!
//! DataFusion's parser, planner, optimizer and operators call themselves for each level, and so does the code that drops a plan. A level
//! takes up to some kilobytes of stack. So the depth is known before each of them sees a statement. Neither look calls itself.

use std::future::{Future, poll_fn};
use std::pin::pin;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::Dialect;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::TenantSqlError;

/// Links of a text for each level of the plan. `SELECT x FROM t JOIN u ON t.y = u.y` has five links, and its plan four levels.
const LINKS_A_LEVEL: usize = 8;
/// Parts that a plan may have, after each reference to a common table expression or view is a copy of it.
const PARTS_MAX: usize = 100_000;

/// Levels and parts of a plan.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    pub(super) levels: usize,
    /// Nodes and expressions.
    pub(super) parts: usize,
}

/// Polls a future on a stack of its own, so that its callers need none for it.
pub(super) async fn on_stack<F: Future>(bytes: usize, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| stacker::grow(bytes, || future.as_mut().poll(context))).await
}

/// Refuses a text that could parse to a tree of too many levels.
///
/// Each level of a tree takes a keyword, an operator or a bracket, so the tree has no more levels than the text has of these between two
/// commas, together with those before each open bracket. Those that lead past a comma count to the end of their brackets: a set
/// operation, a pipe, and the angle of a type's parameters.
pub(super) fn check_text(
    text: &str,
    dialect: Dialect,
    levels_max: usize,
) -> Result<(), TenantSqlError> {
    let Some(dialect) = dialect_from_str(dialect) else {
        return Ok(());
    };
    // A text that has no tokens has no tree; the parser says why.
    let Ok(tokens) = Tokenizer::new(dialect.as_ref(), text).tokenize() else {
        return Ok(());
    };
    // Links before each open bracket, and those that the bracket itself adds: since the last comma, and for good.
    let mut outer = Vec::new();
    let (mut before, mut since_comma, mut for_good) = (0_usize, 0_usize, 0_usize);
    for token in &tokens {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                since_comma += 1;
                outer.push((before, since_comma, for_good));
                before += since_comma + for_good;
                (since_comma, for_good) = (0, 0);
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
        if before + since_comma + for_good > levels_max.saturating_mul(LINKS_A_LEVEL) {
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
    // The plan, subqueries and views, with the levels above each; the nodes of one are borrowed from it.
    let mut roots = vec![(plan.clone(), 0)];
    while let Some((root, above)) = roots.pop() {
        let mut nodes = vec![(&root, above)];
        while let Some((node, above)) = nodes.pop() {
            let mut levels = above + 1;
            shape.parts += 1;
            node.apply_expressions(|expr| {
                let mut exprs = vec![(expr, above + 2)];
                while let Some((expr, level)) = exprs.pop() {
                    shape.parts += 1;
                    levels = levels.max(level);
                    if let Expr::Exists(Exists { subquery, .. })
                    | Expr::InSubquery(InSubquery { subquery, .. })
                    | Expr::SetComparison(SetComparison { subquery, .. })
                    | Expr::ScalarSubquery(subquery) = expr
                    {
                        roots.push((subquery.subquery.as_ref().clone(), level));
                    }
                    expr.apply_children(|child| {
                        exprs.push((child, level + 1));
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
                roots.push((view.into_owned(), levels));
            }
        }
    }
    Ok(shape)
}
