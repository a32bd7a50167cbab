//! Bytes of the values that functions make from lengths in a statement, before it runs.
//!
//! A function allocates its whole value in one call, and reserves nothing. The optimizer calls a function of constants when it plans, and
//! keeps all values. So the check comes before, and adds up the calls of a statement.

use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Alias, Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Statement};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::TenantSqlError;
use super::depth::{COPIES, is_copied};
use crate::engine_version::SIZED_BY_ARGUMENTS;

/// Bytes of a character in UTF-8, at most.
const CHARACTER_BYTES: u64 = 4;
/// Bytes of a number, date or timestamp in a list, at most. Also the fewest bytes that an element of a list counts as.
const ELEMENT_BYTES: u64 = 8;
const DAY_NS: i128 = 24 * 3_600 * 1_000_000_000;
/// Shortest month.
const MONTH_NS: i128 = 28 * DAY_NS;

/// Returns whether the value of a function is as long as its arguments say, by its name in lower case.
pub(super) fn is_bounded(name: &str) -> bool {
    SIZED_BY_ARGUMENTS.contains(&name)
}

/// Refuses a plan whose functions make values of more bytes together than `max`, each called for one row. Arguments that are not
/// constant count least: a text as one byte, and a length as 0.
pub(super) fn check_values(
    plan: &LogicalPlan,
    state: &SessionState,
    max: u64,
) -> Result<(), TenantSqlError> {
    let mut values = Values::new(state, max);
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Statement(Statement::Prepare(prepare)) = node {
            for field in &prepare.fields {
                // A parameter's value is cast to its type before it is in a plan.
                values.add("a parameter", fixed_bytes(field.data_type(), 0));
            }
        }
        node.apply_expressions(|expr| expr.visit(&mut values))
    })?;
    match values.refused {
        Some(function) => Err(TenantSqlError::ValueTooLarge {
            function,
            bytes: values.bytes,
            max,
        }),
        None => Ok(()),
    }
}

/// References to each parameter in a plan, by its name. Each gets a copy of the parameter's value before anything is planned or charged.
#[derive(Debug)]
pub(crate) struct References(BTreeMap<String, u64>);

impl References {
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut all = BTreeMap::new();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                Self::count(expr, 1, &mut all)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(Self(all))
    }

    /// Counts those in an expression of which the optimizer makes so many copies.
    fn count(expr: &Expr, copies: u64, all: &mut BTreeMap<String, u64>) -> Result<()> {
        if let Expr::Placeholder(parameter) = expr {
            let references: &mut u64 = all.entry(parameter.id.clone()).or_default();
            *references = references.saturating_add(copies);
        }
        expr.apply_children(|child| {
            let factor = if is_copied(expr, child) { COPIES } else { 1 };
            Self::count(child, copies.saturating_mul(factor as u64), all)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// Refuses values of which more than `max` bytes would be copied, beside the first copy of each.
    pub(super) fn check(
        &self,
        max: u64,
        size: impl Fn(&str) -> Option<usize>,
    ) -> Result<(), TenantSqlError> {
        let copied = self.0.iter().map(|(name, &references)| {
            let bytes = size(name).unwrap_or(0) as u64;
            bytes.saturating_mul(references - 1)
        });
        match copied.fold(0, u64::saturating_add) {
            bytes if bytes > max => Err(TenantSqlError::ValueTooLarge {
                function: "copies of a parameter".to_owned(),
                bytes,
                max,
            }),
            _ => Ok(()),
        }
    }

    /// The same for the arguments of an `EXECUTE`. Functions in them are within the bound of values.
    pub(super) fn check_arguments(
        &self,
        max: u64,
        arguments: &[Expr],
        state: &SessionState,
    ) -> Result<(), TenantSqlError> {
        let values = Values::new(state, max);
        self.check(max, |name| {
            let number: usize = name.strip_prefix('$')?.parse().ok()?;
            let argument = arguments.get(number.checked_sub(1)?)?;
            Some(values.constant(argument)?.size())
        })
    }
}

struct Values {
    simplifier: ExprSimplifier,
    bytes: u64,
    max: u64,
    refused: Option<String>,
}

impl TreeNodeVisitor<'_> for Values {
    type Node = Expr;

    /// Sees calls inside arguments first. So an argument that is evaluated here is within the bound.
    fn f_up(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        match expr {
            Expr::ScalarFunction(call) => self.add(call.name(), self.bytes_of(call).unwrap_or(0)),
            Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
                self.add("CAST", fixed_bytes(field.data_type(), 0));
            }
            _ => {}
        }
        Ok(match self.refused {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    }
}

impl Values {
    fn new(state: &SessionState, max: u64) -> Self {
        // With a time: the optimizer knows `now()`.
        let context = SimplifyContext::builder()
            .with_config_options(state.config_options().clone())
            .with_current_time();
        Self {
            simplifier: ExprSimplifier::new(context.build()),
            bytes: 0,
            max,
            refused: None,
        }
    }

    fn add(&mut self, function: &str, bytes: u64) {
        if self.refused.is_none() {
            self.bytes = self.bytes.saturating_add(bytes);
            self.refused = (self.bytes > self.max).then(|| function.to_owned());
        }
    }

    /// Bytes of the value for one row; `None` if its length is not bounded or not constant, or DataFusion refuses it.
    fn bytes_of(&self, call: &ScalarFunction) -> Option<u64> {
        if !is_bounded(call.name()) {
            return None;
        }
        let args: Vec<_> = call.args.iter().map(|arg| self.constant(arg)).collect();
        let is_null = args.iter().flatten().any(ScalarValue::is_null);
        let times = |bytes: u64| {
            let count = integer(args.get(1)?.as_ref()?)?;
            Some(bytes.saturating_mul(u64::try_from(count).unwrap_or(0)))
        };
        // Once for each: an argument may be a call itself, and so on.
        let sizes = args.iter().zip(&call.args).map(|(arg, part)| match arg {
            Some(constant) => bytes_of_constant(constant),
            None => self.least(part),
        });
        let sizes: Vec<u64> = sizes.collect();
        let bytes_at = |at: usize| sizes.get(at).copied();
        // Elements of a list, and of lists inside of it.
        let elements_at = |at: usize| match (args.get(at)?, call.args.get(at)?) {
            (Some(list), _) => Some(leaves(&list.to_array().ok()?)),
            (None, Expr::ScalarFunction(_)) => Some((bytes_at(at)? / ELEMENT_BYTES).max(1)),
            (None, _) => Some(1),
        };
        match call.name() {
            "array_repeat" => times(bytes_at(0)?.max(ELEMENT_BYTES)),
            "array_resize" => {
                let filled = args.get(2).and_then(Option::as_ref);
                let filled = filled.filter(|value| !value.is_null());
                let element = match args.first()?.as_ref().map(ScalarValue::data_type) {
                    Some(
                        DataType::List(field)
                        | DataType::LargeList(field)
                        | DataType::FixedSizeList(field, _),
                    ) => fixed_bytes(field.data_type(), ELEMENT_BYTES),
                    _ => ELEMENT_BYTES,
                };
                times(filled.map_or(0, bytes_of_constant).max(element))
            }
            "arrow_cast" | "arrow_try_cast" => {
                let kind = args.get(1)?.as_ref()?.try_as_str()??;
                Some(fixed_bytes(&kind.parse().ok()?, 0))
            }
            "array_to_string" => {
                let kind = args.first()?.as_ref().map(ScalarValue::data_type);
                // Each null is replaced by the last argument.
                let null = bytes_at(2).unwrap_or(0);
                let each = text_bytes(kind.as_ref())
                    .saturating_add(null)
                    .saturating_add(bytes_at(1)?);
                Some(bytes_at(0)?.saturating_add(elements_at(0)?.saturating_mul(each)))
            }
            "array_replace_all" | "array_replace_n" => {
                let (list, count, new) = (bytes_at(0)?, elements_at(0)?, bytes_at(2)?);
                Some(match new > ELEMENT_BYTES {
                    true => list.saturating_add(count.saturating_mul(new)),
                    // A number takes the place of another one.
                    false => list.max(count.saturating_mul(ELEMENT_BYTES)),
                })
            }
            // The shorter ones are filled up.
            "arrays_zip" => {
                let longest = (0..args.len()).filter_map(elements_at).max()?;
                let each = ELEMENT_BYTES.saturating_mul(args.len() as u64);
                let all = sizes.iter().copied().fold(0, u64::saturating_add);
                Some(all.saturating_add(longest.saturating_mul(each)))
            }
            // One that is null is left out.
            "concat_ws" => {
                let all = sizes.iter().skip(1).copied().fold(0, u64::saturating_add);
                let between = bytes_at(0)?.saturating_mul(args.len() as u64);
                Some(all.saturating_add(between))
            }
            _ if is_null => None,
            "repeat" => times(bytes_at(0)?),
            "lpad" | "rpad" => times(CHARACTER_BYTES),
            "replace" => {
                let (text, from, to) = (bytes_at(0)?, bytes_at(1)?, bytes_at(2)?);
                // An empty text is replaced nowhere.
                let places = text.checked_div(from).unwrap_or(0);
                Some(text.saturating_add(places.saturating_mul(to)))
            }
            "regexp_replace" => {
                let (text, to) = (bytes_at(0)?, bytes_at(2)?);
                // Before each byte and at the end, or at the first place. A reference in the replacement takes two bytes or more, and adds what
                // was found: all of these together are the text at most.
                let is_global = match args.get(3) {
                    Some(Some(flags)) => flags
                        .try_as_str()
                        .flatten()
                        .is_some_and(|it| it.contains('g')),
                    Some(None) => true,
                    None => false,
                };
                let places = if is_global { text.saturating_add(1) } else { 1 };
                let found = text.saturating_mul(to / 2);
                let replaced = places.saturating_mul(to).saturating_add(found);
                Some(text.saturating_add(replaced))
            }
            "range" | "generate_series" => {
                let args: Option<Vec<_>> = args.iter().cloned().collect();
                Some(elements(&args?)?.saturating_mul(ELEMENT_BYTES))
            }
            _ => None,
        }
    }

    /// Fewest bytes that a text or a list has, as far as it is known.
    fn least(&self, expr: &Expr) -> u64 {
        let of_all = |parts: &[&Expr], add: fn(u64, u64) -> u64| {
            let bytes = parts.iter().map(|part| match self.constant(part) {
                Some(constant) => bytes_of_constant(&constant),
                None => self.least(part),
            });
            bytes.fold(0, add)
        };
        let bytes = match expr {
            Expr::Alias(Alias { expr, .. })
            | Expr::Cast(Cast { expr, .. })
            | Expr::TryCast(TryCast { expr, .. }) => of_all(&[expr], u64::max),
            Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => {
                of_all(&[&binary.left, &binary.right], u64::saturating_add)
            }
            Expr::Case(case) => {
                let mut values: Vec<&Expr> = case
                    .when_then_expr
                    .iter()
                    .map(|(_, then)| &**then)
                    .collect();
                values.extend(case.else_expr.as_deref());
                of_all(&values, u64::max)
            }
            Expr::ScalarFunction(call) if is_bounded(call.name()) => {
                self.bytes_of(call).unwrap_or(1)
            }
            Expr::ScalarFunction(call) => {
                let args: Vec<&Expr> = call.args.iter().collect();
                match call.name() {
                    "concat" | "array_concat" | "make_array" => of_all(&args, u64::saturating_add),
                    "coalesce" | "nvl" | "greatest" | "least" => of_all(&args, u64::max),
                    "upper" | "lower" | "initcap" | "reverse" | "translate" | "btrim" | "ltrim"
                    | "rtrim" | "array_reverse" | "array_sort" => {
                        of_all(&args[..args.len().min(1)], u64::max)
                    }
                    _ => 1,
                }
            }
            _ => 1,
        };
        bytes.max(1)
    }

    /// Evaluates an expression without columns, as the optimizer will.
    fn constant(&self, expr: &Expr) -> Option<ScalarValue> {
        let coerced = self.simplifier.coerce(expr.clone(), &DFSchema::empty());
        match self.simplifier.simplify(coerced.ok()?).ok()? {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        }
    }
}

/// Bytes that each value of a type takes for its fixed length, also null: DataFusion makes an array of it. An element of a list
/// takes `least` bytes or more, and its width; what is no element takes none for these.
fn fixed_bytes(data_type: &DataType, least: u64) -> u64 {
    let bytes = match data_type {
        DataType::FixedSizeBinary(bytes) => u64::try_from(*bytes).unwrap_or(0),
        DataType::FixedSizeList(field, length) => {
            let element = fixed_bytes(field.data_type(), ELEMENT_BYTES);
            u64::try_from(*length).unwrap_or(0).saturating_mul(element)
        }
        DataType::Struct(fields) => fixed_bytes_of_all(fields.iter(), least),
        DataType::Union(fields, _) => {
            fixed_bytes_of_all(fields.iter().map(|(_, field)| field), least)
        }
        DataType::Dictionary(_, value) => fixed_bytes(value, least),
        DataType::RunEndEncoded(_, values) => fixed_bytes(values.data_type(), least),
        // It may have any number of elements, also null ones.
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => match fixed_bytes(field.data_type(), 0) {
            0 => 0,
            _ => u64::MAX,
        },
        other if least > 0 => other.primitive_width().unwrap_or(0) as u64,
        _ => 0,
    };
    bytes.max(least)
}

fn fixed_bytes_of_all<'a>(fields: impl Iterator<Item = &'a FieldRef>, least: u64) -> u64 {
    let all = fields.map(|field| fixed_bytes(field.data_type(), least));
    all.fold(0, u64::saturating_add)
}

/// Elements of a list, and of lists inside of it.
fn leaves(array: &ArrayRef) -> u64 {
    let inner = match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().values()),
        DataType::LargeList(_) => Some(array.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().values()),
        _ => None,
    };
    // A list that is null has no elements, and may stand for itself.
    (array.len() as u64).saturating_add(inner.map_or(0, leaves))
}

/// Bytes that an element of a list takes as a text, at most, beside its own. A text has as many as it has.
fn text_bytes(kind: Option<&DataType>) -> u64 {
    match kind {
        Some(
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _),
        ) => text_bytes(Some(field.data_type())),
        // The smallest number in full.
        Some(DataType::Float16 | DataType::Float32 | DataType::Float64) => 327,
        Some(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null) | None => {
            0
        }
        // A number, a decimal of 76 digits, or a time with its zone.
        Some(_) => 80,
    }
}

fn bytes_of_constant(value: &ScalarValue) -> u64 {
    let bytes = match value.try_as_str() {
        Some(text) => text.map_or(0, str::len),
        None if value.data_type() == DataType::Null => 0,
        None => {
            let width = value.data_type().primitive_width();
            width.unwrap_or_else(|| value.size())
        }
    };
    bytes as u64
}

fn integer(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(value) => value,
        _ => None,
    }
}

/// Elements of a `range` or `generate_series`, or a few more. One of dates or times has an interval as its step.
fn elements(args: &[ScalarValue]) -> Option<u64> {
    let (first, last, step): (i128, i128, i128) = match args {
        [last] => (0, integer(last)?.into(), 1),
        [first, last] => (integer(first)?.into(), integer(last)?.into(), 1),
        [first, last, step] if matches!(step.data_type(), DataType::Interval(_)) => {
            let [months, days, rest] = interval_ns(step)?;
            let parts = [months, days, rest];
            // One month and minus 28 days may go on without end.
            if parts.iter().any(|part| *part < 0) && parts.iter().any(|part| *part > 0) {
                return Some(u64::MAX);
            }
            (time_ns(first)?, time_ns(last)?, months + days + rest)
        }
        [first, last, step] => (
            integer(first)?.into(),
            integer(last)?.into(),
            integer(step)?.into(),
        ),
        _ => return None,
    };
    let distance = last - first;
    // DataFusion refuses a step of 0.
    if step == 0 || distance.signum() * step.signum() < 0 {
        return Some(0);
    }
    Some(u64::try_from(distance / step + 1).unwrap_or(u64::MAX))
}

/// Parts of an interval, each as short as it can be: months, days, and the rest.
fn interval_ns(interval: &ScalarValue) -> Option<[i128; 3]> {
    let unit = DataType::Interval(IntervalUnit::MonthDayNano);
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = interval.cast_to(&unit).ok()? else {
        return None;
    };
    Some([
        i128::from(interval.months) * MONTH_NS,
        i128::from(interval.days) * DAY_NS,
        interval.nanoseconds.into(),
    ])
}

/// A date or time since 1970, exact to a microsecond.
fn time_ns(time: &ScalarValue) -> Option<i128> {
    // The last date has no microseconds in 64 bits.
    let unit = match time.data_type() {
        DataType::Timestamp(..) => TimeUnit::Microsecond,
        _ => TimeUnit::Second,
    };
    match time.cast_to(&DataType::Timestamp(unit, None)).ok()? {
        ScalarValue::TimestampSecond(seconds, _) => Some(i128::from(seconds?) * 1_000_000_000),
        ScalarValue::TimestampMicrosecond(micros, _) => Some(i128::from(micros?) * 1_000),
        _ => None,
    }
}
