//! Loops, run once with each variable at all values that it has at the start of a round.
//!
//! A variable to which a loop only adds steps of at most `s` is at most `s * (rounds - 1)` above
//! its first value when a round begins, and `s * rounds` after the loop. One that a loop only
//! lowers keeps its upper bound. Any other that a loop changes is unknown, except for what the
//! loop's condition says.

use std::collections::HashMap;
use std::rc::Rc;

use super::machine::{Machine, Pointer, Value, join_variables, moved};
use super::polynomial::Polynomial;
use super::range::Range;
use super::tree::{Expression, ForLoop, Statement, StatementKind, visit_expressions};

/// How a loop changes a variable.
#[derive(Clone, Debug)]
enum Change<'a> {
    /// Adds these, each once a round; `None` is 1.
    Add(Vec<Option<&'a Expression>>),
    /// Subtracts, halves or divides.
    Lower,
    /// Doubles or multiplies.
    Grow,
    Other,
}

impl Machine<'_> {
    pub(super) fn run_for(&mut self, looped: &ForLoop) {
        self.run(&looped.start);
        self.run_loop(looped.condition.as_ref(), &looped.body, &looped.steps);
    }

    pub(super) fn run_while(&mut self, condition: &Expression, body: &[Statement]) {
        self.run_loop(Some(condition), body, &[]);
    }

    fn run_loop(
        &mut self,
        condition: Option<&Expression>,
        body: &[Statement],
        steps: &[Expression],
    ) {
        if let Some(condition) = condition {
            let _ = self.evaluate(condition);
        }
        let before = self.variables.clone();
        let changes = changes(body, steps);
        let rounds = condition.and_then(|condition| self.rounds(condition, &changes));
        let is_strided = condition.is_some_and(|condition| self.is_strided(condition, &changes));
        if let Some(rounds) = &rounds
            && !is_strided
            && self.loops.len() < 64
        {
            self.loops.push(rounds.clone());
        }
        let mut after: Vec<(Rc<str>, Value)> = Vec::new();
        for (name, change) in &changes {
            let Some(value) = before.get(&**name).cloned() else { continue };
            let (inside, ended) = self.repeated(&value, change, rounds.as_ref());
            self.assign(name, inside);
            after.push((name.clone(), ended));
        }
        if let Some(condition) = condition {
            self.narrow(condition, true);
        }
        self.run(body);
        for step in steps {
            let _ = self.evaluate(step);
        }
        self.variables = join_variables(&before, &self.variables);
        for (name, ended) in after {
            self.assign(&name, ended);
        }
    }

    /// The value of a variable when a round begins, and after the loop.
    fn repeated(
        &mut self,
        value: &Value,
        change: &Change<'_>,
        rounds: Option<&Polynomial>,
    ) -> (Value, Value) {
        match change {
            Change::Add(steps) => {
                let mut total = Range::number(0);
                for step in steps {
                    let step = self.step_range(*step);
                    if !step.is_never_negative() {
                        return (Value::Unknown, Value::Unknown);
                    }
                    total = total.add(&step);
                }
                let raised = |rounds: Option<Polynomial>| -> Range {
                    let zero = Some(Polynomial::number(0));
                    let hi = rounds.zip(total.hi.clone()).and_then(|(n, s)| n.multiply(&s));
                    Range { lo: zero, hi }
                };
                let inside = raised(rounds.and_then(|rounds| rounds.plus(-1)));
                let ended = raised(rounds.cloned());
                (raise(value, &inside), raise(value, &ended))
            }
            Change::Lower => {
                let lowered = match value {
                    Value::Int(range) => {
                        let halved = range.is_never_negative().then(|| Polynomial::number(0));
                        Value::Int(Range { lo: halved, hi: range.hi.clone() })
                    }
                    _ => Value::Unknown,
                };
                (lowered.clone(), lowered)
            }
            Change::Grow => match value {
                Value::Int(range) if range.is_never_negative() => {
                    let grown = Value::Int(Range { lo: range.lo.clone(), hi: None });
                    (grown.clone(), grown)
                }
                _ => (Value::Unknown, Value::Unknown),
            },
            Change::Other => match value {
                Value::Pointer(pointer) => {
                    let open =
                        Value::Pointer(Pointer { offset: Range::default(), ..pointer.clone() });
                    (open.clone(), open)
                }
                _ => (Value::Unknown, Value::Unknown),
            },
        }
    }

    fn step_range(&mut self, step: Option<&Expression>) -> Range {
        step.map_or_else(|| Range::number(1), |step| self.range_of(step))
    }

    /// The largest number of rounds of a loop that raises a variable up to a bound.
    fn rounds(
        &mut self,
        condition: &Expression,
        changes: &HashMap<Rc<str>, Change<'_>>,
    ) -> Option<Polynomial> {
        let Expression::Binary(operator, left, right) = condition else { return None };
        if *operator == "&&" {
            return self.rounds(left, changes).or_else(|| self.rounds(right, changes));
        }
        let (counter, bound, extra) = match *operator {
            "<" | "!=" => (left, right, 0),
            "<=" => (left, right, 1),
            ">" => return self.falling_rounds(left, right, changes),
            _ => return None,
        };
        let Expression::Name(name) = &**counter else { return None };
        let Change::Add(steps) = changes.get(name)? else { return None };
        let mut step = Range::number(0);
        for part in steps {
            step = step.add(&self.step_range(*part));
        }
        let start = self.range_of(counter).lo?;
        let distance = self.range_of(bound).hi?.subtract(&start)?.plus(extra)?;
        if !distance.is_never_negative() {
            // It may be below the start for some sizes, and then there is no round.
            return (*step.lo.as_ref()? == Polynomial::number(1)).then_some(distance);
        }
        distance.divide_up(&step.lo?)
    }

    /// Whether a loop goes on by a step that grows with the launch, as one over the whole grid does:
    /// more elements then mean no more rounds of a thread.
    fn is_strided(
        &mut self,
        condition: &Expression,
        changes: &HashMap<Rc<str>, Change<'_>>,
    ) -> bool {
        let Expression::Binary(_, counter, _) = condition else { return false };
        let Expression::Name(name) = &**counter else { return false };
        let Some(Change::Add(steps)) = changes.get(name) else { return false };
        let is_number = |step: &Range| step.hi.as_ref().is_some_and(|hi| hi.as_number().is_some());
        steps.iter().any(|step| !is_number(&self.step_range(*step)))
    }

    /// The rounds of `for (i = n; i > 0; --i)`.
    fn falling_rounds(
        &mut self,
        counter: &Expression,
        bound: &Expression,
        changes: &HashMap<Rc<str>, Change<'_>>,
    ) -> Option<Polynomial> {
        let Expression::Name(name) = counter else { return None };
        matches!(changes.get(name)?, Change::Lower).then_some(())?;
        let distance = self.range_of(counter).hi?.subtract(&self.range_of(bound).lo?)?;
        distance.is_never_negative().then_some(distance)
    }
}

fn raise(value: &Value, by: &Range) -> Value {
    match value {
        Value::Int(range) => Value::Int(range.add(by)),
        Value::Pointer(pointer) => {
            // The step of a pointer counts elements.
            Value::Pointer(moved(pointer, by, false))
        }
        _ => Value::Unknown,
    }
}

/// The variables that a loop changes.
fn changes<'a>(body: &'a [Statement], steps: &'a [Expression]) -> HashMap<Rc<str>, Change<'a>> {
    let mut found: HashMap<Rc<str>, Change<'a>> = HashMap::new();
    let mut declared: Vec<Rc<str>> = Vec::new();
    declared_names(body, &mut declared);
    let nested = nested_changes(body);
    let mut look = |expression: &'a Expression| {
        let (place, operator, operand): (&Expression, &str, Option<&'a Expression>) =
            match expression {
                Expression::Unary("++", place) | Expression::Postfix("++", place) => {
                    (place, "+=", None)
                }
                Expression::Unary("--", place) | Expression::Postfix("--", place) => {
                    (place, "-=", None)
                }
                Expression::Assign(operator, place, operand) => (place, operator, Some(&**operand)),
                _ => return,
            };
        let Expression::Name(name) = place else { return };
        if declared.contains(name) {
            return;
        }
        let mut change = change_by(name, operator, operand);
        if matches!(change, Change::Add(_)) && nested.contains(name) {
            // An inner loop adds more than once a round.
            change = Change::Other;
        }
        let merged = match (found.remove(name), change) {
            (None, change) => change,
            (Some(Change::Add(mut before)), Change::Add(more)) => {
                before.extend(more);
                Change::Add(before)
            }
            (Some(Change::Lower), Change::Lower) => Change::Lower,
            (Some(Change::Grow), Change::Grow) => Change::Grow,
            _ => Change::Other,
        };
        found.insert(name.clone(), merged);
    };
    visit_expressions(body, &mut look);
    for step in steps {
        step.visit(&mut look);
    }
    found
}

fn change_by<'a>(name: &Rc<str>, operator: &str, operand: Option<&'a Expression>) -> Change<'a> {
    let is_self = |expression: &Expression| *expression == Expression::Name(name.clone());
    match operator {
        "+=" => Change::Add(vec![operand]),
        "-=" | ">>=" | "/=" | "&=" | "%=" => Change::Lower,
        "*=" | "<<=" => Change::Grow,
        "=" => match operand {
            Some(Expression::Binary("+", left, right)) if is_self(left) => {
                Change::Add(vec![Some(right)])
            }
            Some(Expression::Binary("+", left, right)) if is_self(right) => {
                Change::Add(vec![Some(left)])
            }
            Some(Expression::Binary("-" | ">>" | "/" | "%", left, _)) if is_self(left) => {
                Change::Lower
            }
            Some(Expression::Binary("*" | "<<", left, _)) if is_self(left) => Change::Grow,
            _ => Change::Other,
        },
        _ => Change::Other,
    }
}

/// Variables that a loop inside these statements changes.
fn nested_changes(body: &[Statement]) -> Vec<Rc<str>> {
    let mut found = Vec::new();
    for statement in body {
        match &statement.kind {
            StatementKind::For(looped) => {
                found.extend(changes(&looped.body, &looped.steps).into_keys());
            }
            StatementKind::While(_, body) => found.extend(changes(body, &[]).into_keys()),
            StatementKind::If(_, then, otherwise) => {
                found.extend(nested_changes(then));
                found.extend(nested_changes(otherwise));
            }
            StatementKind::Block(body) => found.extend(nested_changes(body)),
            _ => {}
        }
    }
    found
}

fn declared_names(body: &[Statement], names: &mut Vec<Rc<str>>) {
    for statement in body {
        match &statement.kind {
            StatementKind::Declare(declared) => names.push(declared.name.clone()),
            StatementKind::For(looped) => {
                declared_names(&looped.start, names);
                declared_names(&looped.body, names);
            }
            StatementKind::While(_, body) | StatementKind::Block(body) => {
                declared_names(body, names);
            }
            StatementKind::If(_, then, otherwise) => {
                declared_names(then, names);
                declared_names(otherwise, names);
            }
            _ => {}
        }
    }
}
