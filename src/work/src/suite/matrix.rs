//! The matrix of a target: the product of its axes, without what it excludes, with what it
//! includes.

use rgpu_model::error::{Exit, Failure, Result};

/// The kind of variable that the values of an axis set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisKind {
    /// A variable of the kernel's sizes.
    Size,
    /// A macro of the compiler.
    Define,
    /// An environment variable.
    Env,
    /// The architecture to compile for.
    Arch,
}

/// An axis with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The kind of the variable that it sets.
    pub kind: AxisKind,
    /// The name of the variable; `arch` for the architecture.
    pub name: String,
    /// The values, in the order written; each becomes cases.
    pub values: Vec<String>,
}

/// One value for each axis, in the order of the axes.
type Combination = Vec<String>;

/// The axes of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The axes, in the order written.
    pub axes: Vec<Axis>,
    /// Combinations that are added.
    pub include: Vec<Combination>,
    /// Combinations that are left out: each names some axes.
    pub exclude: Vec<Vec<(String, String)>>,
}

impl Matrix {
    /// The size of the product; `None` if it does not fit.
    pub(super) fn product(&self) -> Option<usize> {
        self.axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()))
    }

    /// The number of values of each axis: `3 n × 2 TILE`.
    pub fn factors(&self) -> String {
        let factor = |axis: &Axis| format!("{} {}", axis.values.len(), axis.name);
        self.axes.iter().map(factor).collect::<Vec<_>>().join(" × ")
    }

    /// All combinations, the last axis fastest.
    pub fn combinations(&self, target: &str, limit: usize) -> Result<Vec<Combination>> {
        if self.axes.is_empty() {
            return Ok(vec![Vec::new()]);
        }
        let product = self.product();
        if product.is_none_or(|n| n > limit) {
            let n = product.map_or_else(|| "more than fit".to_owned(), |n| n.to_string());
            let what = format!("target `{target}` has {n} cases, above the limit of {limit}");
            return Err(Failure::new(Exit::Config, "too_many_cases", what)
                .cause(format!("its axes: {}", self.factors())));
        }
        let mut all: Vec<Combination> = vec![Vec::new()];
        for axis in &self.axes {
            all = all
                .iter()
                .flat_map(|head| axis.values.iter().map(move |value| (head, value)))
                .map(|(head, value)| [head.as_slice(), std::slice::from_ref(value)].concat())
                .collect();
        }
        all.retain(|combination| !self.is_excluded(combination));
        for added in &self.include {
            if !all.contains(added) {
                all.push(added.clone());
            }
        }
        if all.is_empty() {
            let what =
                format!("target `{target}` has no case: `exclude` leaves none of its matrix");
            return Err(Failure::new(Exit::Config, "all_excluded", what)
                .cause(format!("its axes: {}", self.factors()))
                .hint("narrow `exclude`, or remove the target"));
        }
        Ok(all)
    }
}

/// An entry of `include` or `exclude` that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedRule {
    /// The key of the entry, such as `exclude[0]`.
    pub key: String,
    /// The reason in words, with what would have an effect.
    pub text: String,
}

/// The maximum number of values of an axis that a text names.
const MAX_NAMED_VALUES: usize = 8;

impl Matrix {
    /// The entries of `exclude` that fit no combination of the axes, and those of `include` that
    /// are cases without them.
    pub fn unused_rules(&self) -> Vec<UnusedRule> {
        let mut unused = Vec::new();
        for (at, rule) in self.exclude.iter().enumerate() {
            // The product has every combination of values that the axes have.
            let lacking = rule.iter().find_map(|(name, value)| {
                let axis = self.axes.iter().find(|axis| axis.name == *name)?;
                (!axis.values.contains(value)).then_some((axis, value))
            });
            if let Some((axis, value)) = lacking {
                let text = format!(
                    "it excludes no case: axis `{}` has no value `{value}`; its values: {}",
                    axis.name,
                    named_values(axis)
                );
                unused.push(UnusedRule { key: format!("exclude[{at}]"), text });
            }
        }
        for (at, added) in self.include.iter().enumerate() {
            let in_product =
                self.axes.iter().zip(added).all(|(axis, value)| axis.values.contains(value));
            let is_case = in_product && !self.is_excluded(added);
            if is_case || self.include[..at].contains(added) {
                let words = self.axes.iter().zip(added);
                let words = words.map(|(axis, value)| format!("{}={value}", axis.name));
                let words = words.collect::<Vec<_>>().join(",");
                let text = format!(
                    "it adds no case: the matrix has `{words}` without it; name values that the axes \
                     do not have, or that `exclude` removes"
                );
                unused.push(UnusedRule { key: format!("include[{at}]"), text });
            }
        }
        unused
    }

    /// Whether an entry of `exclude` removes this combination.
    fn is_excluded(&self, combination: &Combination) -> bool {
        self.exclude.iter().any(|rule| {
            rule.iter().all(|(name, value)| {
                let at = self.axes.iter().position(|axis| axis.name == *name);
                at.and_then(|at| combination.get(at)) == Some(value)
            })
        })
    }
}

/// The values of an axis for a text: `1`, `2` and 5 more.
fn named_values(axis: &Axis) -> String {
    let named: Vec<&str> = axis.values.iter().take(MAX_NAMED_VALUES).map(String::as_str).collect();
    let named = format!("`{}`", named.join("`, `"));
    match axis.values.len().saturating_sub(MAX_NAMED_VALUES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The values of a range: `256..8192:x2` doubles, `0..64:+16` adds, `1..4` counts; both ends belong
/// to it. Anything else is a list with commas.
pub fn sweep_values(text: &str) -> Result<Vec<String>, String> {
    let Some((first, rest)) = text.split_once("..") else {
        let values: Vec<String> = text.split(',').map(|value| value.trim().to_owned()).collect();
        return if values.iter().any(String::is_empty) {
            Err(format!("`{text}` has an empty value"))
        } else {
            Ok(values)
        };
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "+1"));
    let number = |text: &str| {
        text.trim().parse::<i64>().map_err(|_| format!("`{text}` is not a whole number"))
    };
    let (first, last) = (number(first)?, number(last)?);
    let wrong_step = || format!("`{step}` is not a valid step: write `x2` or `+16`");
    let (multiply, by) = match (step.strip_prefix('x'), step.strip_prefix('+')) {
        (Some(by), _) => (true, number(by)?),
        (_, Some(by)) => (false, number(by)?),
        _ => return Err(wrong_step()),
    };
    if first > last {
        return Err(format!("`{text}` has no values: its end is below its start"));
    }
    let grows = if multiply { by > 1 && first > 0 } else { by > 0 };
    if !grows {
        return Err(format!("`{text}` has no end: the values must grow from first to last"));
    }
    let mut values = Vec::new();
    let mut next = Some(first);
    while let Some(value) = next.filter(|value| *value <= last) {
        if values.len() == MAX_VALUES {
            return Err(format!("`{text}` has more than {MAX_VALUES} values"));
        }
        values.push(value.to_string());
        next = if multiply { value.checked_mul(by) } else { value.checked_add(by) };
    }
    Ok(values)
}

/// The maximum number of values of one axis.
const MAX_VALUES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str, values: &[&str]) -> Axis {
        let values = values.iter().map(ToString::to_string).collect();
        Axis { kind: AxisKind::Size, name: name.into(), values }
    }

    #[test]
    fn ranges_multiply_add_and_count_and_both_ends_belong_to_them() {
        assert_eq!(sweep_values("256..2048:x2").unwrap(), ["256", "512", "1024", "2048"]);
        assert_eq!(sweep_values("0..40:+16").unwrap(), ["0", "16", "32"]);
        assert_eq!(sweep_values("1..3").unwrap(), ["1", "2", "3"]);
        assert_eq!(sweep_values("f16, bf16").unwrap(), ["f16", "bf16"]);
        for wrong in ["4..1", "0..8:x2", "1..8:x1", "1..8:2", "1..", "a..b", "1,,2", "0..99999"] {
            assert!(sweep_values(wrong).is_err(), "{wrong}");
        }
        let below = "`10..1:x2` has no values: its end is below its start";
        assert_eq!(sweep_values("10..1:x2").unwrap_err(), below);
    }

    #[test]
    fn excludes_leave_combinations_out_and_includes_add_them() {
        let exclude = vec![vec![("n".to_owned(), "2".to_owned())]];
        let include = vec![vec!["9".to_owned(), "z".to_owned()]];
        let axes = vec![axis("n", &["1", "2"]), axis("t", &["x", "y"])];
        let matrix = Matrix { axes, include, exclude };
        let all = matrix.combinations("s:c", 10).unwrap();
        assert_eq!(all, [vec!["1", "x"], vec!["1", "y"], vec!["9", "z"]]);
    }

    #[test]
    fn entries_without_an_effect_are_named_with_the_values_there_are() {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let words = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        let many: Vec<String> = (1..=10).map(|n| n.to_string()).collect();
        let axes = vec![Axis { values: many, ..axis("n", &[]) }, axis("t", &["x", "y"])];
        // The second repeats what the first removes, and still fits cases of the product.
        let exclude = vec![
            pairs(&[("n", "2")]),
            pairs(&[("n", "2"), ("t", "y")]),
            pairs(&[("t", "x"), ("n", "11")]),
            pairs(&[("t", "z")]),
        ];
        let include =
            vec![words(["2", "x"]), words(["3", "x"]), words(["12", "x"]), words(["12", "x"])];
        let unused = Matrix { axes, include, exclude }.unused_rules();
        let found: Vec<&str> = unused.iter().map(|rule| rule.key.as_str()).collect();
        assert_eq!(found, ["exclude[2]", "exclude[3]", "include[1]", "include[3]"]);
        assert_eq!(
            unused[0].text,
            "it excludes no case: axis `n` has no value `11`; its values: `1`, `2`, `3`, `4`, `5`, \
             `6`, `7`, `8` and 2 more"
        );
        assert!(unused[1].text.ends_with("its values: `x`, `y`"), "{unused:?}");
        assert!(unused[2].text.contains("the matrix has `n=3,t=x` without it"), "{unused:?}");
    }

    #[test]
    fn excludes_that_leave_nothing_are_refused_unless_something_is_included() {
        let exclude = ["1", "2"].map(|n| vec![("n".to_owned(), n.to_owned())]).into();
        let axes = vec![axis("n", &["1", "2"]), axis("t", &["x", "y"])];
        let mut matrix = Matrix { axes, exclude, ..Matrix::default() };
        let failure = matrix.combinations("s:c", 10).unwrap_err();
        assert_eq!(failure.code, "all_excluded");
        assert!(failure.what.contains("target `s:c`"), "{failure}");
        assert_eq!(failure.cause.as_deref(), Some("its axes: 2 n × 2 t"));
        matrix.include = vec![vec!["9".to_owned(), "z".to_owned()]];
        assert_eq!(matrix.combinations("s:c", 10).unwrap(), [vec!["9", "z"]]);
    }

    #[test]
    fn a_product_above_the_limit_is_named_before_it_is_made() {
        let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let axes = (0..9).map(|n| Axis { values: many.clone(), ..axis(&format!("a{n}"), &[]) });
        let matrix = Matrix { axes: axes.collect(), ..Matrix::default() };
        let failure = matrix.combinations("s:c", 200).unwrap_err();
        assert_eq!(failure.code, "too_many_cases");
        assert!(failure.cause.unwrap().starts_with("its axes: 1000 a0 × 1000 a1"));
    }
}
