//! Follows a function with ranges in place of values, to learn which elements of each array it
//! touches.
//!
//! Each variable has a [`Range`] whose bounds are polynomials of the sizes. A condition narrows the
//! ranges of its operands in its branch, and after a branch that returns. A loop runs once, with
//! each variable that it changes at all values that it may have ([`super::repeat`]). What is not
//! understood has no range; an index without an upper bound leaves its array's extent open.

use std::collections::HashMap;
use std::rc::Rc;

use super::declare::Declared;
use super::limits::SizeLimit;
use super::polynomial::Polynomial;
use super::range::Range;
use super::tree::{
    Declaration, Expression, LaunchExpression, MemoryKind, Statement, StatementKind, TypeText,
};
use super::types::TypeTable;

/// Limits on the work for one kernel.
const MAX_STEPS: u32 = 100_000;
pub(super) const MAX_CALLS: u32 = 6;

/// A value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Int(Range),
    Pointer(Pointer),
    Dim3([Range; 3]),
    Unknown,
}

/// A place in an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pointer {
    /// Index in [`Machine::memories`]; `None`: memory whose extent does not matter.
    pub(super) memory: Option<usize>,
    /// In bytes from the start of the memory.
    pub(super) offset: Range,
    /// Size of an element; `None` if unknown.
    pub(super) element: Option<u64>,
    /// Where it points to rows, the extents of a row, outermost first.
    pub(super) row: Vec<i64>,
}

/// An array, and what is known of its use.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) read: bool,
    pub(super) written: bool,
    /// Bytes of an element as it is declared; `None` if unknown.
    pub(super) element: Option<u64>,
    /// The bytes that are touched at most, as far as known.
    pub(super) end: Option<Polynomial>,
    /// The first line with an index without an upper bound.
    pub(super) open_line: Option<u32>,
    /// The integers that it gets at first; `None` if it holds none.
    pub(super) random: Option<Range>,
    /// Values that it holds, if it is only read.
    pub(super) values: Option<Range>,
    /// The offsets of accesses in its own elements, at the lower end of their ranges.
    pub(super) offsets: Vec<Polynomial>,
}

/// A launch that was met, with its values.
#[derive(Clone, Debug)]
pub(super) struct MetLaunch {
    pub(super) expression: LaunchExpression,
    pub(super) config: Vec<Value>,
    pub(super) arguments: Vec<Value>,
    /// Template parameters of the function with the launch.
    pub(super) template: HashMap<Rc<str>, Range>,
    pub(super) aliases: HashMap<Rc<str>, TypeText>,
    /// Types of the variables at the launch.
    pub(super) kinds: HashMap<Rc<str>, TypeText>,
}

pub(super) struct Machine<'a> {
    pub(super) declared: &'a Declared,
    pub(super) types: TypeTable,
    /// Variables, and `threadIdx.x` and the like.
    pub(super) variables: HashMap<String, Value>,
    /// Ranges of expressions, from conditions, by their text.
    pub(super) facts: HashMap<String, Range>,
    pub(super) memories: Vec<Memory>,
    /// Dynamic shared memory, once it is declared.
    pub(super) dynamic_shared: Option<usize>,
    /// Left and right sides of comparisons.
    pub(super) compared: Vec<(Polynomial, Polynomial)>,
    pub(super) launches: Vec<MetLaunch>,
    /// Extents of arrays in shared and local memory that are numbers.
    pub(super) arrays: HashMap<Rc<str>, Vec<Option<i64>>>,
    /// What sizes may be at most, so that an index stays in such an array.
    pub(super) limits: Vec<SizeLimit>,
    /// The rounds of loops, where they are known.
    pub(super) loops: Vec<Polynomial>,
    /// Names that are sizes although they have a value, which is then the default: in host code.
    pub(super) size_names: HashMap<String, i64>,
    /// Whether integers without a known value become sizes: so in host code.
    pub(super) unknown_is_size: bool,
    /// Declared types of variables.
    pub(super) kinds: HashMap<Rc<str>, TypeText>,
    pub(super) returned: Option<Value>,
    steps: u32,
    pub(super) calls: u32,
    pub(super) line: u32,
}

impl<'a> Machine<'a> {
    pub(super) fn new(declared: &'a Declared, types: TypeTable) -> Self {
        Self {
            declared,
            types,
            variables: HashMap::new(),
            facts: HashMap::new(),
            memories: Vec::new(),
            dynamic_shared: None,
            compared: Vec::new(),
            launches: Vec::new(),
            arrays: HashMap::new(),
            limits: Vec::new(),
            loops: Vec::new(),
            size_names: HashMap::new(),
            unknown_is_size: false,
            kinds: HashMap::new(),
            returned: None,
            steps: 0,
            calls: 0,
            line: 0,
        }
    }

    /// Whether it gave up, so that nothing that it found is complete.
    pub(super) fn gave_up(&self) -> bool {
        self.steps >= MAX_STEPS
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        self.steps < MAX_STEPS
    }

    pub(super) fn set_range(&mut self, name: &str, range: Range) {
        self.variables.insert(name.to_owned(), Value::Int(range));
    }

    /// Runs statements. Returns whether they leave the function, loop or block.
    pub(super) fn run(&mut self, statements: &[Statement]) -> bool {
        for statement in statements {
            if !self.step() || self.run_statement(statement) {
                return true;
            }
        }
        false
    }

    fn run_statement(&mut self, statement: &Statement) -> bool {
        self.line = statement.line;
        match &statement.kind {
            StatementKind::Declare(declared) => self.declare(declared),
            StatementKind::Expression(expression) => {
                let _ = self.evaluate(expression);
                if let Expression::Call(function, arguments) = expression
                    && **function == Expression::Name("assert".into())
                    && let [condition] = arguments.as_slice()
                {
                    self.narrow(condition, true);
                }
            }
            StatementKind::If(condition, then, otherwise) => {
                return self.run_if(condition, then, otherwise);
            }
            StatementKind::For(looped) => self.run_for(looped),
            StatementKind::While(condition, body) => self.run_while(condition, body),
            StatementKind::Block(body) => return self.run(body),
            StatementKind::Return(value) => {
                let value = self.evaluate(value);
                self.returned = Some(match self.returned.take() {
                    Some(before) => join_values(&before, &value),
                    None => value,
                });
                return true;
            }
            StatementKind::Leave => return true,
            StatementKind::Assembly(operands) => {
                for operand in operands {
                    if let Value::Pointer(pointer) = self.evaluate(operand) {
                        // Asynchronous copies move at most 16 bytes for each thread.
                        self.access(&pointer, 16, true, true);
                    }
                }
            }
        }
        false
    }

    fn run_if(
        &mut self,
        condition: &Expression,
        then: &[Statement],
        otherwise: &[Statement],
    ) -> bool {
        let _ = self.evaluate(condition);
        let (variables, facts) = (self.variables.clone(), self.facts.clone());
        self.narrow(condition, true);
        let then_leaves = self.run(then);
        let after_then = std::mem::replace(&mut self.variables, variables);
        let then_facts = std::mem::replace(&mut self.facts, facts);
        self.narrow(condition, false);
        let otherwise_leaves = self.run(otherwise);
        match (then_leaves, otherwise_leaves) {
            (true, true) => return true,
            (true, false) => {}
            (false, true) => {
                self.variables = after_then;
                self.facts = then_facts;
            }
            (false, false) => {
                self.variables = join_variables(&after_then, &self.variables);
                let own = std::mem::take(&mut self.facts);
                self.facts =
                    own.into_iter().filter(|(k, v)| then_facts.get(k) == Some(v)).collect();
            }
        }
        false
    }

    fn declare(&mut self, declared: &Declaration) {
        let kind = self.types.resolve(&declared.kind);
        self.kinds.insert(declared.name.clone(), kind.clone());
        self.forget_facts(&declared.name);
        let extents: Vec<Option<i64>> =
            declared.extents.iter().map(|extent| self.number_of(extent)).collect();
        self.arrays.insert(declared.name.clone(), extents);
        let element = self.types.element(&kind).and_then(|element| element.bytes());
        let value = if declared.memory == MemoryKind::DynamicShared {
            let memory = match self.dynamic_shared {
                Some(memory) => memory,
                None => {
                    self.memories.push(Memory::default());
                    self.dynamic_shared = Some(self.memories.len() - 1);
                    self.memories.len() - 1
                }
            };
            let offset = Range::number(0);
            Value::Pointer(Pointer { memory: Some(memory), offset, element, row: Vec::new() })
        } else if declared.extents.is_empty() {
            self.declared_value(declared, &kind, element)
        } else {
            declared.init.iter().for_each(|init| {
                let _ = self.evaluate(init);
            });
            Value::Unknown
        };
        self.variables.insert(declared.name.to_string(), value);
        self.declare_members(declared, &kind);
    }

    fn declared_value(
        &mut self,
        declared: &Declaration,
        kind: &TypeText,
        element: Option<u64>,
    ) -> Value {
        let is_dim3 = kind.words.first().is_some_and(|word| &**word == "dim3");
        let arguments: Vec<Value> =
            declared.constructor.iter().map(|argument| self.evaluate(argument)).collect();
        if is_dim3 {
            return match &declared.init {
                Some(Expression::List(items)) => {
                    let items: Vec<Value> = items.iter().map(|item| self.evaluate(item)).collect();
                    dim3(&items)
                }
                Some(init) => match self.evaluate(init) {
                    Value::Int(x) => dim3(&[Value::Int(x)]),
                    value => value,
                },
                None => dim3(&arguments),
            };
        }
        if self.size_names.contains_key(&*declared.name) {
            return Value::Int(Range::exact(Polynomial::variable(&declared.name)));
        }
        let value = match &declared.init {
            Some(init) => self.evaluate(init),
            None => arguments.into_iter().next().unwrap_or(Value::Unknown),
        };
        match value {
            Value::Pointer(pointer) => {
                let is_typed = kind.stars == 1 && element.is_some();
                let element = if is_typed { element } else { pointer.element };
                Value::Pointer(Pointer { element, ..pointer })
            }
            Value::Int(range) if kind.stars == 0 && self.may_be_integer(kind) => Value::Int(range),
            Value::Dim3(axes) => Value::Dim3(axes),
            _ if self.unknown_is_size
                && kind.stars == 0
                && (self.is_integer(kind)
                    || self.may_be_integer(kind)
                        && declared.init.as_ref().is_some_and(is_extent)) =>
            {
                Value::Int(Range::exact(Polynomial::variable(&declared.name)))
            }
            _ => Value::Unknown,
        }
    }

    fn is_integer(&self, kind: &TypeText) -> bool {
        let scalar = self.types.element(kind).and_then(|element| element.scalar());
        scalar.is_some_and(|dtype| !dtype.is_float())
    }

    fn may_be_integer(&self, kind: &TypeText) -> bool {
        let first = kind.words.first().map_or("", |word| &**word);
        first == "auto" || first.is_empty() || self.is_integer(kind)
    }

    /// Drops what conditions said about expressions with this variable.
    fn forget_facts(&mut self, name: &str) {
        self.facts.retain(|text, _| !mentions(text, name));
    }

    pub(super) fn assign(&mut self, name: &str, value: Value) {
        self.forget_facts(name);
        self.variables.insert(name.to_owned(), value);
    }

    /// The number that an expression is, if it is known.
    pub(super) fn number_of(&mut self, expression: &Expression) -> Option<i64> {
        self.range_of(expression).as_number()
    }

    pub(super) fn range_of(&mut self, expression: &Expression) -> Range {
        match self.evaluate(expression) {
            Value::Int(range) => range,
            _ => Range::default(),
        }
    }

    pub(super) fn evaluate(&mut self, expression: &Expression) -> Value {
        if !self.step() {
            return Value::Unknown;
        }
        let value = self.evaluate_parts(expression);
        let has_own_fact = matches!(
            expression,
            Expression::Binary(..) | Expression::Member(..) | Expression::Call(..)
        );
        if has_own_fact && !self.facts.is_empty() {
            let fact = self.facts.get(&expression.text());
            return match (value, fact) {
                (Value::Int(range), Some(fact)) => {
                    Value::Int(range.narrowed(fact.lo.clone(), fact.hi.clone()))
                }
                (Value::Unknown, Some(fact)) => Value::Int(fact.clone()),
                (value, _) => value,
            };
        }
        value
    }

    fn evaluate_parts(&mut self, expression: &Expression) -> Value {
        match expression {
            Expression::Number(value) => Value::Int(Range::number(*value)),
            Expression::Name(name) => self.name(name),
            Expression::SizeOf(kind) => {
                let bytes = match kind.stars {
                    0 => self.types.element(kind).and_then(|element| element.bytes()),
                    _ => Some(8),
                };
                let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
                bytes.map_or(Value::Unknown, |bytes| Value::Int(Range::number(bytes)))
            }
            Expression::Member(base, name) => {
                let key = expression.text();
                if let Some(value) = self.variables.get(&key) {
                    return value.clone();
                }
                match (self.evaluate(base), &**name) {
                    (Value::Dim3([x, _, _]), "x") => Value::Int(x),
                    (Value::Dim3([_, y, _]), "y") => Value::Int(y),
                    (Value::Dim3([_, _, z]), "z") => Value::Int(z),
                    _ => Value::Unknown,
                }
            }
            Expression::Index(base, index)
                if matches!(**base, Expression::Member(..))
                    && matches!(**index, Expression::Number(_) | Expression::Name(_))
                    && let Some(at) = self.number_of(index)
                    && let Some(value) = self.variables.get(&format!("{}.{at}", base.text())) =>
            {
                value.clone()
            }
            Expression::Index(..) | Expression::Unary("*", _) => match self.place(expression) {
                // A row of an array is a pointer again.
                Some(pointer) if self.is_row(expression) => Value::Pointer(pointer),
                Some(pointer) => self.load(&pointer),
                None => Value::Unknown,
            },
            Expression::Unary("&", inner) => match self.place(inner) {
                Some(pointer) => Value::Pointer(pointer),
                None => Value::Unknown,
            },
            Expression::Unary(operator @ ("++" | "--"), inner) => {
                self.increment(operator, inner);
                self.evaluate(inner)
            }
            Expression::Postfix(operator, inner) => {
                let before = self.evaluate(inner);
                self.increment(operator, inner);
                before
            }
            Expression::Unary(operator, inner) => {
                let inner = self.range_of(inner);
                match *operator {
                    "-" => Value::Int(Range::number(0).subtract(&inner)),
                    "+" => Value::Int(inner),
                    "!" => Value::Int(Range::between(0, 1)),
                    _ => Value::Unknown,
                }
            }
            Expression::Binary(operator, left, right) => self.binary(operator, left, right),
            Expression::Assign(operator, left, right) => self.assignment(operator, left, right),
            Expression::Ternary(condition, then, otherwise) => {
                let _ = self.evaluate(condition);
                let (variables, facts) = (self.variables.clone(), self.facts.clone());
                self.narrow(condition, true);
                let then = self.evaluate(then);
                self.variables = variables.clone();
                self.facts.clone_from(&facts);
                self.narrow(condition, false);
                let otherwise = self.evaluate(otherwise);
                self.variables = variables;
                self.facts = facts;
                join_values(&then, &otherwise)
            }
            Expression::Cast(kind, inner) => self.cast(kind, inner),
            Expression::Call(function, arguments) => self.call(function, arguments),
            Expression::List(items) => {
                items.iter().for_each(|item| {
                    let _ = self.evaluate(item);
                });
                Value::Unknown
            }
            Expression::Launch(launch) => {
                let config = launch.config.iter().map(|e| self.evaluate(e)).collect();
                let arguments = launch.arguments.iter().map(|e| self.evaluate(e)).collect();
                let known = self.variables.iter().filter_map(|(name, value)| match value {
                    Value::Int(range) => Some((Rc::from(name.as_str()), range.clone())),
                    _ => None,
                });
                self.launches.push(MetLaunch {
                    expression: (**launch).clone(),
                    config,
                    arguments,
                    template: known.collect(),
                    aliases: self.types.aliases.clone(),
                    kinds: self.kinds.clone(),
                });
                Value::Unknown
            }
            Expression::Lambda(body) => {
                let (variables, returned) = (self.variables.clone(), self.returned.take());
                self.run(body);
                self.variables = variables;
                self.returned = returned;
                Value::Unknown
            }
            Expression::Other => Value::Unknown,
        }
    }

    fn name(&mut self, name: &Rc<str>) -> Value {
        if let Some(value) = self.variables.get(&**name) {
            return value.clone();
        }
        if let Some(constant) = self.declared.constants.get(name) {
            if self.calls >= MAX_CALLS {
                return Value::Unknown;
            }
            self.calls += 1;
            let value = self.evaluate(constant);
            self.calls -= 1;
            return value;
        }
        match &**name {
            "warpSize" | "WARP_SIZE" => Value::Int(Range::number(32)),
            _ => Value::Unknown,
        }
    }

    fn cast(&mut self, kind: &TypeText, inner: &Expression) -> Value {
        let kind = self.types.resolve(kind);
        match self.evaluate(inner) {
            Value::Pointer(pointer) if kind.stars > 0 => {
                let element = self.types.element(&kind).and_then(|element| element.bytes());
                let element = if kind.stars == 1 { element.or(pointer.element) } else { Some(8) };
                Value::Pointer(Pointer { element, ..pointer })
            }
            // An address as a number, for assembly.
            Value::Pointer(pointer) => Value::Pointer(pointer),
            // A float keeps the whole number, so that `ceil((float)n / 16)` is understood.
            Value::Int(range) if kind.stars == 0 => Value::Int(range),
            _ => Value::Unknown,
        }
    }

    fn binary(&mut self, operator: &str, left: &Expression, right: &Expression) -> Value {
        if matches!(operator, "&&" | "||") {
            let _ = self.evaluate(left);
            let (variables, facts) = (self.variables.clone(), self.facts.clone());
            self.narrow(left, operator == "&&");
            let _ = self.evaluate(right);
            self.variables = variables;
            self.facts = facts;
            return Value::Int(Range::between(0, 1));
        }
        let (left, right) = (self.evaluate(left), self.evaluate(right));
        match (left, right) {
            (Value::Pointer(pointer), Value::Int(count)) if matches!(operator, "+" | "-") => {
                Value::Pointer(moved(&pointer, &count, operator == "-"))
            }
            (Value::Int(count), Value::Pointer(pointer)) if operator == "+" => {
                Value::Pointer(moved(&pointer, &count, false))
            }
            (Value::Pointer(pointer), _) if matches!(operator, "+" | "-") => {
                Value::Pointer(Pointer { offset: Range::default(), ..pointer })
            }
            (Value::Int(left), Value::Int(right)) => arithmetic(operator, &left, &right),
            // A rest of a division, or bits under a mask, are bounded whatever the operand is.
            (Value::Unknown, Value::Int(right)) if operator == "&" && right.is_never_negative() => {
                Value::Int(Range { lo: Some(Polynomial::number(0)), hi: right.hi })
            }
            (Value::Unknown, Value::Int(right)) if operator == "%" => {
                Value::Int(Range::default().remainder(&right))
            }
            _ => Value::Unknown,
        }
    }

    /// The place that an expression names in an array; `None` if it is no place that matters.
    fn place(&mut self, expression: &Expression) -> Option<Pointer> {
        match expression {
            Expression::Index(base, index) => {
                self.note_limit(expression);
                let base = self.evaluate(base);
                let index = self.evaluate(index);
                let Value::Pointer(pointer) = base else { return None };
                let mut place = match index {
                    Value::Int(index) => moved(&pointer, &index, false),
                    _ => Pointer { offset: Range::default(), ..pointer },
                };
                if !place.row.is_empty() {
                    place.row.remove(0);
                }
                Some(place)
            }
            Expression::Unary("*", inner) => match self.evaluate(inner) {
                Value::Pointer(pointer) => Some(pointer),
                _ => None,
            },
            // `p[i].x` is a part of the element.
            Expression::Member(base, _) => self.place(base),
            Expression::Cast(_, inner) => self.place(inner),
            _ => None,
        }
    }

    /// Whether an expression names a row of an array with several extents: `a[i]` of `a[8][16]`.
    fn is_row(&self, expression: &Expression) -> bool {
        let (mut base, mut indexes) = (expression, 0);
        while let Expression::Index(inner, _) = base {
            indexes += 1;
            base = inner;
        }
        let Expression::Name(name) = base else { return false };
        matches!(self.variables.get(&**name),
            Some(Value::Pointer(pointer)) if indexes > 0 && pointer.row.len() >= indexes)
    }

    pub(super) fn load(&mut self, pointer: &Pointer) -> Value {
        self.access(pointer, pointer.element.unwrap_or(16), true, false);
        let values = pointer.memory.and_then(|at| self.memories.get(at)?.values.clone());
        values.map_or(Value::Unknown, Value::Int)
    }

    /// Records that `bytes` at a place are read or written.
    pub(super) fn access(&mut self, pointer: &Pointer, bytes: u64, read: bool, written: bool) {
        let line = self.line;
        let Some(memory) = pointer.memory.and_then(|at| self.memories.get_mut(at)) else { return };
        memory.read |= read;
        memory.written |= written;
        // `float4` through a cast steps over four elements.
        let element = memory.element.or(pointer.element);
        let unit = element.and_then(|element| i64::try_from(element).ok()).unwrap_or(1);
        if let Some(lo) = &pointer.offset.lo
            && memory.offsets.len() < 64
        {
            let in_elements = lo.divide_exactly(&Polynomial::number(unit));
            memory.offsets.push(in_elements.unwrap_or_else(|| lo.clone()));
        }
        let size = i64::try_from(bytes).ok();
        let end = pointer.offset.hi.as_ref().zip(size).and_then(|(hi, size)| hi.plus(size));
        let is_placed = pointer.offset.is_likely_positive();
        match (end, is_placed) {
            (Some(end), true) => {
                memory.end = match &memory.end {
                    None => Some(end),
                    Some(before) => match before.larger(&end) {
                        Some(larger) => Some(larger),
                        None => {
                            memory.open_line = memory.open_line.or(Some(line));
                            Some(end)
                        }
                    },
                };
            }
            (end, _) => {
                memory.open_line = memory.open_line.or(Some(line));
                if memory.end.is_none() {
                    memory.end = end;
                }
            }
        }
    }

    fn increment(&mut self, operator: &str, place: &Expression) {
        let one = Expression::Number(1);
        let operator = if operator == "++" { "+=" } else { "-=" };
        let _ = self.assignment(operator, place, &one);
    }

    fn assignment(&mut self, operator: &str, left: &Expression, right: &Expression) -> Value {
        let arithmetic_operator = operator.strip_suffix('=').filter(|text| !text.is_empty());
        let value = match arithmetic_operator {
            None => self.evaluate(right),
            Some(arithmetic_operator) if matches!(left, Expression::Name(_)) => {
                self.binary(arithmetic_operator, left, right)
            }
            Some(_) => {
                let _ = self.evaluate(right);
                Value::Unknown
            }
        };
        match left {
            Expression::Name(name) => {
                let kind = self.kinds.get(name).cloned();
                let is_kept = match (&value, kind) {
                    (Value::Int(_), Some(kind)) => kind.stars == 0 && self.may_be_integer(&kind),
                    _ => true,
                };
                let value = if is_kept { value } else { Value::Unknown };
                self.assign(name, value.clone());
                value
            }
            Expression::Member(base, axis) => {
                let key = left.text();
                self.forget_facts(&key);
                if let Expression::Name(name) = &**base
                    && let Some(Value::Dim3(axes)) = self.variables.get_mut(&**name)
                {
                    let at = ["x", "y", "z"].iter().position(|known| *known == &**axis);
                    if let (Some(slot), Value::Int(range)) =
                        (at.and_then(|at| axes.get_mut(at)), &value)
                    {
                        *slot = range.clone();
                    }
                    return value;
                }
                match self.place(base) {
                    Some(pointer) => {
                        self.access(&pointer, pointer.element.unwrap_or(16), false, true);
                        self.variables.remove(&key);
                    }
                    None => {
                        self.variables.insert(key, value.clone());
                    }
                }
                value
            }
            place => {
                if let Some(pointer) = self.place(place) {
                    let bytes = pointer.element.unwrap_or(16);
                    self.access(&pointer, bytes, arithmetic_operator.is_some(), true);
                }
                value
            }
        }
    }
}

/// Whether an expression is an extent of a tensor of torch: `x.size(0)`.
fn is_extent(expression: &Expression) -> bool {
    matches!(expression, Expression::Call(function, _)
        if matches!(&**function, Expression::Member(_, name) if matches!(&**name, "size" | "numel")))
}

/// Whether the identifier `name` is in `text`.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// A pointer after so many elements.
pub(super) fn moved(pointer: &Pointer, count: &Range, backwards: bool) -> Pointer {
    let element = pointer.element.and_then(|element| i64::try_from(element).ok());
    let step = element.and_then(|e| pointer.row.iter().try_fold(e, |e, n| e.checked_mul(*n)));
    let bytes = match step {
        Some(element) => count.multiply(&Range::number(element)),
        None => Range::default(),
    };
    let offset =
        if backwards { pointer.offset.subtract(&bytes) } else { pointer.offset.add(&bytes) };
    Pointer { offset, ..pointer.clone() }
}

pub(super) fn dim3(values: &[Value]) -> Value {
    if let [Value::Dim3(axes)] = values {
        return Value::Dim3(axes.clone());
    }
    let axis = |at: usize| match values.get(at) {
        Some(Value::Int(range)) => range.clone(),
        Some(_) => Range::default(),
        None => Range::number(1),
    };
    Value::Dim3([axis(0), axis(1), axis(2)])
}

fn arithmetic(operator: &str, left: &Range, right: &Range) -> Value {
    let zero = || Some(Polynomial::number(0));
    let bits = right.as_number().filter(|bits| (0..62).contains(bits));
    Value::Int(match operator {
        "+" => left.add(right),
        "-" => left.subtract(right),
        "*" => left.multiply(right),
        "/" => left.divide(right),
        "%" => left.remainder(right),
        "<<" => match bits {
            Some(bits) => left.multiply(&Range::number(1 << bits)),
            None => Range::default(),
        },
        ">>" => match bits {
            Some(bits) => left.divide(&Range::number(1 << bits)),
            None if left.is_never_negative() => Range { lo: zero(), hi: left.hi.clone() },
            None => Range::default(),
        },
        "&" => match (left.is_never_negative(), right.is_never_negative()) {
            (true, true) => match (left.as_number(), right.as_number()) {
                (Some(a), Some(b)) => Range::number(a & b),
                _ => {
                    let hi = left.smaller(right).hi;
                    Range { lo: zero(), hi }
                }
            },
            (true, false) => Range { lo: zero(), hi: left.hi.clone() },
            (false, true) => Range { lo: zero(), hi: right.hi.clone() },
            _ => Range::default(),
        },
        // Neither sets a bit that none of the operands has.
        "|" | "^" if left.is_never_negative() && right.is_never_negative() => {
            Range { lo: zero(), hi: left.add(right).hi }
        }
        "<" | ">" | "<=" | ">=" | "==" | "!=" => Range::between(0, 1),
        _ => Range::default(),
    })
}

pub(super) fn join_values(left: &Value, right: &Value) -> Value {
    match (left, right) {
        (left, right) if left == right => left.clone(),
        (Value::Int(left), Value::Int(right)) => Value::Int(left.join(right)),
        (Value::Pointer(left), Value::Pointer(right)) if left.memory == right.memory => {
            Value::Pointer(Pointer {
                memory: left.memory,
                offset: left.offset.join(&right.offset),
                element: left
                    .element
                    .filter(|e| right.element == Some(*e) && left.row == right.row),
                row: left.row.clone(),
            })
        }
        _ => Value::Unknown,
    }
}

pub(super) fn join_variables(
    left: &HashMap<String, Value>,
    right: &HashMap<String, Value>,
) -> HashMap<String, Value> {
    let mut joined = HashMap::new();
    for (name, value) in right {
        if let Some(other) = left.get(name) {
            joined.insert(name.clone(), join_values(other, value));
        }
    }
    joined
}
