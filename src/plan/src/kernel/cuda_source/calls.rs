//! Calls of functions while a kernel is followed: those of the source are followed as well, and of
//! CUDA's and libraries' functions it is known which memory they touch.

use std::collections::HashMap;
use std::rc::Rc;

use super::declare::Function;
use super::lex::Token;
use super::machine::{MAX_CALLS, Machine, Pointer, Value, dim3, moved};
use super::members::members_of;
use super::parse::Parser;
use super::polynomial::Polynomial;
use super::range::Range;
use super::tree::{Expression, LaunchExpression, TypeText};

impl<'a> Machine<'a> {
    pub(super) fn call(&mut self, function: &Expression, arguments: &[Expression]) -> Value {
        let (name, template) = match function {
            Expression::Name(name) => (name.clone(), [].as_slice()),
            Expression::Call(inner, template) => match &**inner {
                Expression::Name(name) => (name.clone(), template.as_slice()),
                _ => (Rc::from(""), [].as_slice()),
            },
            Expression::Member(base, name) => {
                let _ = self.evaluate(base);
                (name.clone(), [].as_slice())
            }
            _ => (Rc::from(""), [].as_slice()),
        };
        if matches!(&*name, "ceil" | "ceilf")
            && let [quotient] = arguments
            && let Some((left, right)) = quotient_of(quotient)
        {
            let (left, right) = (self.range_of(left), self.range_of(right));
            return Value::Int(left.divide_up(&right));
        }
        if let Some(launch) = launch_call(&name, arguments, self.line) {
            return self.evaluate(&launch);
        }
        let found = self.find_function(&name, arguments.len());
        if let Some(function) = found
            && self.calls < MAX_CALLS
        {
            return self.inline(function, template, arguments);
        }
        let values: Vec<Value> = arguments.iter().map(|argument| self.evaluate(argument)).collect();
        self.builtin(&name, &values)
    }

    fn find_function(&self, name: &str, arguments: usize) -> Option<&'a Function> {
        let declared = self.declared;
        let both = declared.device_functions.iter().chain(&declared.host_functions);
        both.into_iter().find(|f| &*f.name == name && f.params.len() >= arguments)
    }

    /// Runs a function of the source with the values of its arguments.
    fn inline(
        &mut self,
        function: &'a Function,
        template: &[Expression],
        arguments: &[Expression],
    ) -> Value {
        let mut values: Vec<Value> = arguments.iter().map(|e| self.evaluate(e)).collect();
        for (param, value) in function.params.iter().zip(&mut values) {
            if let Value::Pointer(pointer) = value
                && param.kind.stars == 1
            {
                let element = self.types.element(&param.kind).and_then(|e| e.bytes());
                pointer.element = element.or(pointer.element);
            }
        }
        let mut bound: HashMap<String, Value> = HashMap::new();
        let mut aliases = self.types.aliases.clone();
        for (at, param) in function.template.iter().enumerate() {
            let words: Vec<_> = match template.get(at) {
                Some(Expression::SizeOf(kind)) => kind.words.clone(),
                _ => param.default.iter().map(|token| token.text.clone()).collect(),
            };
            if words.is_empty() {
                continue;
            }
            if param.is_type {
                let resolved = self.types.resolve(&TypeText { words, ..TypeText::default() });
                aliases.insert(param.name.clone(), resolved);
            } else if let Some(value) = self.template_value(&words) {
                bound.insert(param.name.to_string(), Value::Int(value));
            }
        }
        let before = self.variables.clone();
        let is_global = |name: &str| name.contains("Idx.") || name.contains("Dim.");
        bound.extend(
            before.iter().filter(|(name, _)| is_global(name)).map(|(n, v)| (n.clone(), v.clone())),
        );
        for (param, argument) in function.params.iter().zip(arguments) {
            if let Expression::Name(name) = argument {
                bound.extend(members_of(&before, name, &param.name));
            }
        }
        for (param, value) in function.params.iter().zip(values) {
            let value = if self.size_names.contains_key(&*param.name) {
                Value::Int(Range::exact(Polynomial::variable(&param.name)))
            } else {
                value
            };
            bound.insert(param.name.to_string(), value);
        }
        let kinds = std::mem::take(&mut self.kinds);
        for param in &function.params {
            self.kinds.insert(param.name.clone(), param.kind.clone());
        }
        let facts = std::mem::take(&mut self.facts);
        let returned = self.returned.take();
        let types = std::mem::replace(&mut self.types.aliases, aliases);
        let line = self.line;
        self.variables = bound;
        self.calls += 1;
        self.run(&function.body);
        self.calls -= 1;
        self.line = line;
        self.types.aliases = types;
        self.kinds = kinds;
        let inner = std::mem::replace(&mut self.variables, before);
        self.facts = facts;
        for (param, argument) in function.params.iter().zip(arguments) {
            if let (true, Expression::Name(name)) = (param.kind.reference, argument)
                && !param.kind.constant
            {
                let value = inner.get(&*param.name).cloned().unwrap_or(Value::Unknown);
                self.assign(name, value);
            }
        }
        std::mem::replace(&mut self.returned, returned).unwrap_or(Value::Unknown)
    }

    /// The number that a template argument is.
    pub(super) fn template_value(&mut self, words: &[Rc<str>]) -> Option<Range> {
        let tokens: Vec<Token> = words.iter().map(|text| Token::made(text)).collect();
        let names = super::parse::TypeNames::default();
        let expression = Parser::new(&tokens, &names).assignment();
        let range = self.range_of(&expression);
        range.as_exact().is_some().then_some(range)
    }

    /// Functions of CUDA and of libraries.
    fn builtin(&mut self, name: &str, values: &[Value]) -> Value {
        let int = |at: usize| match values.get(at) {
            Some(Value::Int(range)) => range.clone(),
            _ => Range::default(),
        };
        let element = |pointer: &Pointer| pointer.element.unwrap_or(16);
        match name {
            "dim3" | "make_uint3" => return dim3(values),
            "min" | "umin" | "imin" => return Value::Int(int(0).smaller(&int(1))),
            "max" | "umax" | "imax" => return Value::Int(int(0).larger(&int(1))),
            "ceil_div" | "ceildiv" | "CeilDiv" | "ceilDiv" | "cdiv" | "div_up" | "divUp"
            | "DivUp" | "iDivUp" | "div_ceil" | "divup" | "div_round_up" | "ATenCeilDiv"
            | "CEIL_DIV" | "DIVUP" => return Value::Int(int(0).divide_up(&int(1))),
            _ => {}
        }
        let is_named = |part: &str| name.contains(part);
        let (reads, writes) = match name {
            "__ldg" | "__ldca" | "__ldcs" | "__ldcg" | "__ldlu" | "__ldcv" => (true, false),
            "__stcs" | "__stcg" | "__stwb" | "__stwt" => (false, true),
            _ if is_named("atomic") => (true, true),
            _ if is_named("prefetch") => (true, false),
            _ if is_named("printf") => return Value::Unknown,
            _ => {
                self.other_function(name, values);
                return Value::Unknown;
            }
        };
        let Some(Value::Pointer(pointer)) = values.first() else { return Value::Unknown };
        if writes {
            self.access(pointer, element(pointer), reads, true);
            return Value::Unknown;
        }
        self.load(pointer)
    }

    /// A function of which only the arguments are known.
    fn other_function(&mut self, name: &str, values: &[Value]) {
        let matrix = matches!(name, "load_matrix_sync" | "store_matrix_sync");
        let leading = values.iter().rev().find_map(|value| match value {
            Value::Int(range) => Some(range.clone()),
            _ => None,
        });
        let copied = values.iter().rev().find_map(|value| match value {
            Value::Int(range) => range.as_number().and_then(|n| u64::try_from(n).ok()),
            _ => None,
        });
        for value in values {
            let Value::Pointer(pointer) = value else { continue };
            let bytes = pointer.element.unwrap_or(16);
            if matrix && let Some(leading) = &leading {
                // A tile of 16 rows, or fewer of more columns.
                let rows = leading.multiply(&Range::between(0, 15));
                let last = moved(&moved(pointer, &rows, false), &Range::between(0, 15), false);
                self.access(&last, bytes, name.starts_with("load"), !name.starts_with("load"));
                continue;
            }
            if name.contains("memcpy_async") || name.contains("cp_async") {
                self.access(pointer, copied.unwrap_or(16).max(bytes), true, false);
                continue;
            }
            // A library's function may use any part of it.
            let open = Pointer { offset: Range::default(), ..pointer.clone() };
            self.access(pointer, bytes, true, true);
            self.access(&open, bytes, true, true);
        }
    }
}

/// `cudaLaunchKernel((void *)kernel, grid, block, arguments, shared)` as a launch whose arguments are
/// not known.
fn launch_call(name: &str, arguments: &[Expression], line: u32) -> Option<Expression> {
    if !matches!(name, "cudaLaunchKernel" | "cudaLaunchCooperativeKernel") {
        return None;
    }
    let [kernel, grid, block, _, rest @ ..] = arguments else { return None };
    let mut kernel = kernel;
    while let Expression::Cast(_, inner) | Expression::Unary("&", inner) = kernel {
        kernel = inner;
    }
    let Expression::Name(kernel) = kernel else { return None };
    Some(Expression::Launch(Box::new(LaunchExpression {
        name: kernel.clone(),
        template: Vec::new(),
        config: [grid, block].into_iter().chain(rest.first()).cloned().collect(),
        arguments: Vec::new(),
        line,
    })))
}

/// Both sides of a division, through casts.
fn quotient_of(expression: &Expression) -> Option<(&Expression, &Expression)> {
    match expression {
        Expression::Binary("/", left, right) => Some((left, right)),
        Expression::Cast(_, inner) => quotient_of(inner),
        _ => None,
    }
}
