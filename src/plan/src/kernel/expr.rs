//! Size expressions, which `kernel.toml` may have in place of numbers that depend on the problem
//! size.
//!
//! They are evaluated on the laptop only, so that plans and runner inputs contain plain numbers.
//! Grammar, lowest precedence first: `a + b`, `a - b`; `a * b`, `a / b`, `a % b`; `-a`; numbers
//! (`1_000`, in `[work]` also `0.5`), variables, `( )`, and the functions `min`, `max`, `ceil_div`
//! and `align_up`. `[work]` also has `sum(e)`, which adds up `e` over the groups of a grouped
//! problem.
//!
//! There are two evaluations: [`Expr::int`] is checked 64-bit arithmetic, in which overflow,
//! division by zero and (in shapes) an inexact `/` are errors; [`Expr::float`] is in f64, for rates
//! and the roofline.

mod parse;

/// A parsed expression with its source text.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Int(i64),
    Float(f64),
    Var(String),
    Negative(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Call(Function, Box<Node>, Box<Node>),
    Sum(Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Min,
    Max,
    CeilDiv,
    AlignUp,
}

/// The rule for a `/` with a remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// It is an error: a shape that does not divide is a mistake.
    Exact,
    /// It rounds towards zero, as in C.
    Truncating,
}

/// An expression that cannot be parsed or has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExprError {
    /// It does not follow the grammar.
    #[error("expected {expected} at character {at} of `{text}`")]
    Syntax {
        /// The token that would be valid there.
        expected: &'static str,
        /// Position of the character, from 1.
        at: usize,
        /// The expression with the error.
        text: String,
    },
    /// Parentheses or signs are nested too deeply, or there are too many operators.
    #[error("`{text}` is nested too deeply")]
    TooDeep {
        /// The expression that is nested too deeply.
        text: String,
    },
    /// A variable that `[sizes]` does not list.
    #[error("`{name}` in `{text}` is not a variable of `[sizes]`")]
    UnknownVariable {
        /// The variable that is not listed.
        name: String,
        /// The expression that uses it.
        text: String,
    },
    /// A name followed by `(` that is not one of the functions.
    #[error("`{name}` in `{text}` is not a function; there are `min`, `max`, `ceil_div`, \
             `align_up`{}", if *.work { " and `sum`" } else { "" })]
    UnknownFunction {
        /// The function that does not exist.
        name: String,
        /// The expression that calls it.
        text: String,
        /// Whether `sum` is allowed.
        work: bool,
    },
    /// The value does not fit in 64 bits.
    #[error("`{text}` does not fit in 64 bits")]
    Overflow {
        /// The expression whose value is too large.
        text: String,
    },
    /// Division, `%`, `ceil_div` or `align_up` by zero.
    #[error("`{text}` divides by zero")]
    DivisionByZero {
        /// The expression that divides by zero.
        text: String,
    },
    /// `ceil_div` or `align_up` with a negative argument.
    #[error("`{text}` takes `ceil_div` or `align_up` of a negative number")]
    Negative {
        /// The expression with the negative number.
        text: String,
    },
    /// A shape with an inexact division.
    #[error("{left} / {right} in `{text}` is not exact")]
    Inexact {
        /// The expression with the inexact division.
        text: String,
        /// The dividend, a value of this case.
        left: i64,
        /// The divisor, never 0.
        right: i64,
    },
    /// A variable outside `sum()` whose value differs between the groups of a problem.
    #[error("`{name}` in `{text}` differs between groups; put it inside `sum( )`")]
    OutsideSum {
        /// The variable that differs between groups.
        name: String,
        /// The expression that uses it.
        text: String,
    },
    /// The expression is NaN or infinite.
    #[error("`{text}` has no finite value")]
    NotFinite {
        /// The expression without a finite value.
        text: String,
    },
}

/// The variant of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// Whole numbers only, as in sizes and launch extents.
    Size,
    /// Also decimal numbers and `sum( )`.
    Work,
}

/// Values of the variables: names in the order of `[sizes]`, and one row of values.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The names of the size variables.
    pub vars: &'a [String],
    /// Their values, in the same order.
    pub values: &'a [i64],
}

impl Scope<'_> {
    fn get(&self, name: &str) -> Option<i64> {
        let index = self.vars.iter().position(|var| var == name)?;
        self.values.get(index).copied()
    }
}

impl Expr {
    /// Parses `text`; every variable must be one of `vars`.
    pub fn parse(text: &str, grammar: Grammar, vars: &[String]) -> Result<Self, ExprError> {
        let root = parse::parse(text, grammar)?;
        let expr = Self { text: text.to_owned(), root };
        match expr.root.variables().into_iter().find(|name| !vars.iter().any(|v| v == name)) {
            Some(name) => {
                Err(ExprError::UnknownVariable { name: name.to_owned(), text: text.to_owned() })
            }
            None => Ok(expr),
        }
    }

    /// An expression that is only a number.
    pub fn number(value: i64) -> Self {
        Self { text: value.to_string(), root: Node::Int(value) }
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value as a whole number.
    pub fn int(&self, scope: Scope<'_>, division: Division) -> Result<i64, ExprError> {
        self.int_of(&self.root, scope, division)
    }

    /// The value in f64, over all groups: `sum(e)` adds up `e` over the groups. An expression
    /// without `sum` is the work of one group, and its values are added up.
    ///
    /// # Errors
    /// [`ExprError`] for a value that is not finite, or a variable outside `sum` that differs
    /// between groups.
    pub fn float(&self, vars: &[String], groups: &[Vec<i64>]) -> Result<f64, ExprError> {
        let value = if self.root.has_sum() {
            self.float_of(&self.root, vars, groups)?
        } else {
            let mut total = 0.0;
            for group in groups {
                total += self.float_of(&self.root, vars, std::slice::from_ref(group))?;
            }
            total
        };
        if value.is_finite() {
            Ok(value)
        } else {
            Err(ExprError::NotFinite { text: self.text.clone() })
        }
    }

    fn int_of(&self, node: &Node, scope: Scope<'_>, division: Division) -> Result<i64, ExprError> {
        let overflow = || ExprError::Overflow { text: self.text.clone() };
        let by_zero = || ExprError::DivisionByZero { text: self.text.clone() };
        let value_of = |node: &Node| self.int_of(node, scope, division);
        match node {
            Node::Int(value) => Ok(*value),
            // The parser allows decimal numbers and `sum` only in `[work]`, which is evaluated in
            // f64.
            Node::Float(_) | Node::Sum(_) => Err(overflow()),
            Node::Var(name) => scope.get(name).ok_or_else(|| ExprError::UnknownVariable {
                name: name.clone(),
                text: self.text.clone(),
            }),
            Node::Negative(inner) => value_of(inner)?.checked_neg().ok_or_else(overflow),
            Node::Binary(operator, left, right) => {
                let (left, right) = (value_of(left)?, value_of(right)?);
                match operator {
                    Operator::Add => left.checked_add(right).ok_or_else(overflow),
                    Operator::Sub => left.checked_sub(right).ok_or_else(overflow),
                    Operator::Mul => left.checked_mul(right).ok_or_else(overflow),
                    Operator::Div | Operator::Rem if right == 0 => Err(by_zero()),
                    Operator::Rem => left.checked_rem(right).ok_or_else(overflow),
                    Operator::Div => {
                        let quotient = left.checked_div(right).ok_or_else(overflow)?;
                        if division == Division::Exact && left % right != 0 {
                            return Err(ExprError::Inexact {
                                text: self.text.clone(),
                                left,
                                right,
                            });
                        }
                        Ok(quotient)
                    }
                }
            }
            Node::Call(function, left, right) => {
                let (left, right) = (value_of(left)?, value_of(right)?);
                let negative = || ExprError::Negative { text: self.text.clone() };
                match function {
                    Function::Min => Ok(left.min(right)),
                    Function::Max => Ok(left.max(right)),
                    _ if right == 0 => Err(by_zero()),
                    _ if left < 0 || right < 0 => Err(negative()),
                    Function::CeilDiv => Ok(ceil_div(left, right)),
                    Function::AlignUp => {
                        ceil_div(left, right).checked_mul(right).ok_or_else(overflow)
                    }
                }
            }
        }
    }

    fn float_of(
        &self,
        node: &Node,
        vars: &[String],
        groups: &[Vec<i64>],
    ) -> Result<f64, ExprError> {
        let value_of = |node: &Node| self.float_of(node, vars, groups);
        Ok(match node {
            Node::Int(value) => *value as f64,
            Node::Float(value) => *value,
            Node::Var(name) => {
                let mut values =
                    groups.iter().map(|row| Scope { vars, values: row }.get(name).unwrap_or(0));
                let first = values.next().unwrap_or(0);
                if values.any(|value| value != first) {
                    return Err(ExprError::OutsideSum {
                        name: name.clone(),
                        text: self.text.clone(),
                    });
                }
                first as f64
            }
            Node::Negative(inner) => -value_of(inner)?,
            Node::Binary(operator, left, right) => {
                let (left, right) = (value_of(left)?, value_of(right)?);
                match operator {
                    Operator::Add => left + right,
                    Operator::Sub => left - right,
                    Operator::Mul => left * right,
                    Operator::Div => left / right,
                    Operator::Rem => left % right,
                }
            }
            Node::Call(function, left, right) => {
                let (left, right) = (value_of(left)?, value_of(right)?);
                match function {
                    Function::Min => left.min(right),
                    Function::Max => left.max(right),
                    Function::CeilDiv => (left / right).ceil(),
                    Function::AlignUp => (left / right).ceil() * right,
                }
            }
            Node::Sum(inner) => {
                let mut total = 0.0;
                for group in groups {
                    total += self.float_of(inner, vars, std::slice::from_ref(group))?;
                }
                total
            }
        })
    }
}

/// Rounds the quotient up; both must be at least 0, and `right` not 0.
fn ceil_div(left: i64, right: i64) -> i64 {
    left / right + i64::from(left % right != 0)
}

impl Node {
    fn children(&self) -> Vec<&Node> {
        match self {
            Node::Int(_) | Node::Float(_) | Node::Var(_) => Vec::new(),
            Node::Negative(a) | Node::Sum(a) => vec![a],
            Node::Binary(_, a, b) | Node::Call(_, a, b) => vec![a, b],
        }
    }

    fn variables(&self) -> Vec<&str> {
        match self {
            Node::Var(name) => vec![name],
            node => node.children().into_iter().flat_map(Node::variables).collect(),
        }
    }

    fn has_sum(&self) -> bool {
        matches!(self, Node::Sum(_)) || self.children().into_iter().any(Node::has_sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars() -> Vec<String> {
        ["m", "n"].map(str::to_owned).to_vec()
    }

    fn int(text: &str) -> Result<i64, ExprError> {
        let vars = vars();
        Expr::parse(text, Grammar::Size, &vars)?
            .int(Scope { vars: &vars, values: &[100, 7] }, Division::Exact)
    }

    #[test]
    fn operators_bind_as_in_c() {
        assert_eq!(int("1 + 2 * 3"), Ok(7));
        assert_eq!(int("(1 + 2) * 3 - -4"), Ok(13));
        assert_eq!(int("10 - 4 - 3"), Ok(3));
        assert_eq!(int("m % n"), Ok(2));
        assert_eq!(int("ceil_div(m, n) + align_up(m, 32)"), Ok(15 + 128));
        assert_eq!(int("min(max(m, n), 1_000)"), Ok(100));
        assert_eq!(int("9223372036854775807"), Ok(i64::MAX));
    }

    #[test]
    fn arithmetic_that_has_no_exact_value_is_an_error() {
        let text = |t: &str| t.to_owned();
        assert_eq!(
            int("m / n"),
            Err(ExprError::Inexact { text: text("m / n"), left: 100, right: 7 })
        );
        assert_eq!(int("m / 0"), Err(ExprError::DivisionByZero { text: text("m / 0") }));
        assert_eq!(int("m % 0"), Err(ExprError::DivisionByZero { text: text("m % 0") }));
        assert!(matches!(int("9223372036854775807 + 1"), Err(ExprError::Overflow { .. })));
        assert!(matches!(int("9223372036854775808"), Err(ExprError::Overflow { .. })));
        assert!(matches!(int("align_up(9223372036854775807, 2)"), Err(ExprError::Overflow { .. })));
        assert!(matches!(int("ceil_div(-1, 2)"), Err(ExprError::Negative { .. })));
    }

    #[test]
    fn a_truncating_division_rounds_towards_zero() {
        let vars = vars();
        let expr = Expr::parse("m / n", Grammar::Size, &vars).unwrap();
        let scope = Scope { vars: &vars, values: &[100, 7] };
        assert_eq!(expr.int(scope, Division::Truncating), Ok(14));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let message = |text| int(text).unwrap_err().to_string();
        insta::assert_snapshot!(
            ["", "1 +", "(m", "m n", "k", "floor(m)", "sum(m)", "1.5", "min(m)", "m $ n"]
                .map(message)
                .join("\n"),
            @r"
        expected a number, a name or `(` at character 1 of ``
        expected a number, a name or `(` at character 4 of `1 +`
        expected `)` at character 3 of `(m`
        expected an operator or the end at character 3 of `m n`
        `k` in `k` is not a variable of `[sizes]`
        `floor` in `floor(m)` is not a function; there are `min`, `max`, `ceil_div`, `align_up`
        `sum` in `sum(m)` is not a function; there are `min`, `max`, `ceil_div`, `align_up`
        expected a whole number at character 1 of `1.5`
        expected `,` at character 6 of `min(m)`
        expected an operator or the end at character 3 of `m $ n`
        "
        );
    }

    #[test]
    fn work_is_added_over_groups() {
        let vars = vars();
        let groups = [vec![2, 3], vec![4, 5]];
        let float = |text| Expr::parse(text, Grammar::Work, &vars).unwrap().float(&vars, &groups);
        assert_eq!(float("2 * m * n"), Ok(2.0 * (6.0 + 20.0)));
        assert_eq!(float("0.5 * sum(m * n) + 1"), Ok(14.0));
        assert!(matches!(float("m * sum(n)"), Err(ExprError::OutsideSum { .. })));
        assert!(matches!(float("m / 0"), Err(ExprError::NotFinite { .. })));
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(matches!(int(&deep), Err(ExprError::TooDeep { .. })));
        assert!(matches!(int(&"-".repeat(100_000)), Err(ExprError::TooDeep { .. })));
        let long = vec!["1"; 50_000].join("+");
        assert!(int(&long).is_ok() || matches!(int(&long), Err(ExprError::TooDeep { .. })));
    }
}
