//! Finds the kernels, functions, structures and constants that a source declares.

use std::collections::HashMap;
use std::rc::Rc;

use super::lex::{Token, text_of};
use super::parse::{Parser, TypeNames, is_builtin_type, split_arguments};
use super::tree::{Expression, MemoryKind, Statement, StatementKind, TypeText, visit_expressions};
use super::types::{ElementType, Field, Layout, Member, TypeTable, dtype};

/// What a source declares.
#[derive(Clone, Debug, Default)]
pub(in crate::kernel) struct Declared {
    pub(in crate::kernel) kernels: Vec<Function>,
    /// Functions that run on the device only, and those that run on the host.
    pub(super) device_functions: Vec<Function>,
    pub(super) host_functions: Vec<Function>,
    pub(super) constants: HashMap<Rc<str>, Expression>,
    /// `extern __shared__` arrays outside of functions.
    pub(super) shared: Vec<Statement>,
    pub(super) types: TypeTable,
    /// `template __global__ void f<float>(…)`: name and arguments.
    pub(super) instantiations: Vec<(Rc<str>, Vec<Vec<Token>>)>,
    pub(in crate::kernel) has_main: bool,
    pub(in crate::kernel) has_host_entry: bool,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub(in crate::kernel) struct Function {
    pub(in crate::kernel) name: Rc<str>,
    /// Its namespaces, each followed by `::`; an unnamed one adds nothing.
    pub(in crate::kernel) scope: String,
    /// Its namespaces, outermost first; empty text for an unnamed one.
    pub(super) namespaces: Vec<String>,
    pub(in crate::kernel) template: Vec<TemplateParam>,
    pub(in crate::kernel) params: Vec<Param>,
    /// The first argument of `__launch_bounds__`.
    pub(super) launch_bounds: Option<Expression>,
    pub(super) body: Vec<Statement>,
    pub(in crate::kernel) line: u32,
    /// Whether it stands in the source itself, not in an included file.
    pub(super) is_own: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct TemplateParam {
    pub(in crate::kernel) name: Rc<str>,
    pub(in crate::kernel) is_type: bool,
    pub(super) is_bool: bool,
    /// Its default argument; empty without one.
    pub(super) default: Vec<Token>,
    /// `typename...`, a template as a parameter, or a constraint that was not understood.
    pub(super) is_unusual: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct Param {
    pub(in crate::kernel) name: Rc<str>,
    pub(super) kind: TypeText,
    /// Whether it has extents in brackets, which make it a pointer.
    pub(super) is_array: bool,
    /// The extents of the rows that it points to, outermost first: those behind the first.
    pub(super) row: Vec<Expression>,
    /// As written, without a default.
    pub(super) tokens: Vec<Token>,
    pub(in crate::kernel) line: u32,
}

impl Declared {
    /// Whether a compiler makes code of a kernel: of a template only for an instance that the source
    /// names, which the host code does where it launches one.
    pub(in crate::kernel) fn makes_code(&self, with_host_code: bool) -> bool {
        self.kernels.iter().any(|kernel| kernel.template.is_empty())
            || !self.instantiations.is_empty()
            || with_host_code && self.host_functions.iter().any(Function::has_launch)
    }

    /// The kernels that the source itself defines; those of its headers if it defines none.
    pub(in crate::kernel) fn own_kernels(&self) -> Vec<&Function> {
        let own: Vec<&Function> = self.kernels.iter().filter(|k| k.is_own).collect();
        if own.is_empty() { self.kernels.iter().collect() } else { own }
    }

    /// The elements of a parameter's array, or its own; and whether it is an array. `None` for a
    /// type that is not known, and for an array of pointers.
    pub(in crate::kernel) fn element_of(&self, param: &Param) -> Option<(ElementType, bool)> {
        let kind = self.types.resolve(&param.kind);
        let stars = kind.stars + usize::from(param.is_array);
        let element = self.types.element(&kind).filter(|_| stars <= 1)?;
        Some((element, stars == 1))
    }
}

impl Param {
    /// Whether the kernel may not write what it points to.
    pub(in crate::kernel) fn is_constant(&self) -> bool {
        self.kind.constant
    }

    /// As written.
    pub(in crate::kernel) fn text(&self) -> String {
        text_of(&self.tokens)
    }
}

impl Function {
    /// The same function with the members of each structure that it takes by value in place of the
    /// structure: `p.x` of `p`. Gaps between them become members that nothing reads, so that they
    /// can be laid out one after the other.
    pub(super) fn with_members(&self, types: &TypeTable) -> Self {
        let mut params = Vec::new();
        for param in &self.params {
            let kind = types.resolve(&param.kind);
            let by_value = kind.stars == 0 && !param.is_array && !kind.reference;
            match types.layout(&kind).filter(|_| by_value) {
                Some(layout) => params.extend(member_params(param, layout)),
                None => params.push(param.clone()),
            }
        }
        Self { params, ..self.clone() }
    }

    /// The number in `__launch_bounds__`, if it is written there.
    pub(in crate::kernel) fn max_threads(&self) -> Option<i64> {
        match self.launch_bounds {
            Some(Expression::Number(threads)) => Some(threads),
            _ => None,
        }
    }

    /// Whether its body declares dynamic shared memory.
    pub(in crate::kernel) fn has_dynamic_shared(&self) -> bool {
        self.body.iter().any(|statement| {
            matches!(&statement.kind, StatementKind::Declare(declared)
                if declared.memory == MemoryKind::DynamicShared)
        })
    }

    /// Whether it launches a kernel.
    pub(super) fn has_launch(&self) -> bool {
        let mut found = false;
        visit_expressions(&self.body, &mut |e| found |= matches!(e, Expression::Launch(_)));
        found
    }
}

/// Begins the names of members that stand for gaps.
pub(super) const GAP: &str = "gap";

fn member_params(param: &Param, layout: Layout) -> Vec<Param> {
    let member = |path: String, kind| Param {
        name: format!("{}.{path}", param.name).into(),
        kind,
        ..param.clone()
    };
    let mut params = Vec::new();
    let mut end = 0;
    for Member { path, kind, offset } in layout.members {
        let bytes =
            if kind.stars > 0 { Some(8) } else { dtype(&kind.words).and_then(|d| d.bytes_for(1)) };
        let bytes = bytes.unwrap_or(1);
        // Where it would lie without the gap.
        while u64::next_multiple_of(end, bytes) < offset {
            let unit =
                [8, 4, 2, 1].into_iter().find(|unit| end % unit == 0 && end + unit <= offset);
            let unit = unit.unwrap_or(1);
            let word =
                ["uint8_t", "uint16_t", "uint32_t", "uint64_t"][unit.trailing_zeros() as usize & 3];
            let kind = TypeText { words: vec![word.into()], ..TypeText::default() };
            params.push(member(format!("{GAP}{end}"), kind));
            end += unit;
        }
        params.push(member(path, kind));
        end = offset + bytes;
    }
    if params.is_empty() {
        // A structure without members takes a byte: `struct Add { … operator() … }`.
        let kind = TypeText { words: vec!["uint8_t".into()], ..TypeText::default() };
        params.push(member(format!("{GAP}0"), kind));
    }
    params
}

/// Reads the declarations of a preprocessed source.
pub(super) fn declared(tokens: &[Token]) -> Declared {
    let mut types = TypeNames::default();
    // Types may be used in functions that stand before others declare them in an included file.
    for window in tokens.windows(2) {
        let [word, name] = window else { continue };
        let is_type = matches!(&*word.text, "struct" | "class" | "typename" | "using" | "enum");
        if is_type && name.text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            types.0.insert(name.text.clone());
        }
    }
    let mut reader =
        Reader { tokens, at: 0, types, scopes: Vec::new(), declared: Declared::default() };
    reader.read();
    let is_main = |words: &[Token]| words.iter().map(|token| &*token.text).eq(["int", "main", "("]);
    reader.declared.has_main = tokens.windows(3).any(is_main);
    reader.declared
}

/// A brace that is open at the level of declarations.
enum Scope {
    Namespace(String),
    Linkage,
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    types: TypeNames,
    scopes: Vec<Scope>,
    declared: Declared,
}

impl<'a> Reader<'a> {
    fn text_at(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            let before = self.at;
            self.declaration();
            if self.at == before {
                self.at += 1;
            }
        }
    }

    fn declaration(&mut self) {
        match self.text_at(self.at) {
            "namespace" => self.namespace(),
            "inline" if self.text_at(self.at + 1) == "namespace" => self.at += 1,
            "}" => {
                self.scopes.pop();
                self.at += 1;
            }
            ";" => self.at += 1,
            "extern" if self.text_at(self.at + 1).starts_with('"') => {
                self.at += 2;
                if self.text_at(self.at) == "{" {
                    self.scopes.push(Scope::Linkage);
                    self.at += 1;
                }
            }
            "using" => self.using(),
            "typedef" => self.typedef(),
            "template" if self.text_at(self.at + 1) != "<" => self.instantiation(),
            _ => self.function_or_variable(),
        }
    }

    fn namespace(&mut self) {
        let mut name = String::new();
        self.at += 1;
        while !matches!(self.text_at(self.at), "{" | ";" | "=" | "") {
            name.push_str(self.text_at(self.at));
            self.at += 1;
        }
        if self.text_at(self.at) == "{" {
            self.scopes.push(Scope::Namespace(name));
            self.at += 1;
        } else {
            self.skip_declaration();
        }
    }

    fn namespaces(&self) -> Vec<String> {
        let names = self.scopes.iter().filter_map(|open| match open {
            Scope::Namespace(name) => Some(name.clone()),
            Scope::Linkage => None,
        });
        names.collect()
    }

    fn scope(&self) -> String {
        let names = self.namespaces().into_iter().filter(|name| !name.is_empty());
        names.map(|name| name + "::").collect()
    }

    /// The index after the bracket that closes the one at `open`.
    fn end_of_brackets(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for at in open..self.tokens.len() {
            match self.text_at(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Skips to the `;` or the body that ends a declaration.
    fn skip_declaration(&mut self) {
        while self.at < self.tokens.len() {
            match self.text_at(self.at) {
                ";" => {
                    self.at += 1;
                    return;
                }
                "{" => {
                    self.at = self.end_of_brackets(self.at);
                    if self.text_at(self.at) == ";" {
                        self.at += 1;
                    }
                    return;
                }
                "(" | "[" => self.at = self.end_of_brackets(self.at),
                _ => self.at += 1,
            }
        }
    }

    fn using(&mut self) {
        let name = self.text_at(self.at + 1);
        if self.text_at(self.at + 2) == "=" {
            let end = (self.at..self.tokens.len()).find(|at| self.text_at(*at) == ";");
            let inside = self.tokens.get(self.at + 3..end.unwrap_or(self.at + 3));
            let mut parser = Parser::new(inside.unwrap_or_default(), &self.types);
            if let Some(kind) = parser.type_text() {
                self.declared.types.aliases.insert(name.into(), kind);
            }
        }
        self.skip_declaration();
    }

    fn typedef(&mut self) {
        if matches!(self.text_at(self.at + 1), "struct" | "union") {
            self.at += 1;
            return self.structure();
        }
        let end = (self.at..self.tokens.len()).find(|at| self.text_at(*at) == ";");
        let inside = self.tokens.get(self.at + 1..end.unwrap_or(self.at + 1)).unwrap_or_default();
        let mut parser = Parser::new(inside, &self.types);
        if let (Some(kind), Some(name)) = (parser.type_text(), inside.last()) {
            self.types.0.insert(name.text.clone());
            self.declared.types.aliases.insert(name.text.clone(), kind);
        }
        self.skip_declaration();
    }

    /// `struct [name] { fields } [name];`
    fn structure(&mut self) {
        let open = (self.at..self.tokens.len())
            .find(|at| matches!(self.text_at(*at), "{" | ";" | "(" | "="));
        let Some(open) = open.filter(|open| self.text_at(*open) == "{") else {
            return self.function_or_variable_from(self.at);
        };
        let head = self.tokens.get(self.at + 1..open).unwrap_or_default();
        let head = head.split(|token| &*token.text == ":").next().unwrap_or_default();
        let mut names = head.iter().filter(|t| t.text.starts_with(|c: char| c.is_alphabetic()));
        let name = names.next_back().map(|token| token.text.clone());
        let end = self.end_of_brackets(open);
        let body = self.tokens.get(open + 1..end - 1).unwrap_or_default();
        // Of a base's members nothing is known here.
        let is_derived =
            self.tokens.get(self.at..open).unwrap_or_default().iter().any(|t| &*t.text == ":");
        let fields = self.fields(body).filter(|_| !is_derived);
        let after = self.tokens.get(end).filter(|t| &*t.text != ";").map(|t| t.text.clone());
        for name in name.into_iter().chain(after) {
            self.types.0.insert(name.clone());
            if let Some(fields) = &fields {
                self.declared.types.structures.insert(name, fields.clone());
            }
        }
        self.at = end;
        self.skip_declaration();
    }

    /// The members of a structure; `None` if some were not understood.
    fn fields(&self, body: &[Token]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            // A member function ends with its body.
            let end = rest.iter().position(|token| matches!(&*token.text, ";" | "{"))?;
            let (member, after) = rest.split_at(end);
            let is_function = member.iter().any(|token| &*token.text == "(");
            if rest.get(end).is_some_and(|token| &*token.text == "{") {
                let mut depth = 0_usize;
                let close = after.iter().position(|token| {
                    match &*token.text {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    depth == 0
                })?;
                rest = after.get(close + 1..)?;
                if !is_function {
                    return None;
                }
                rest = rest.strip_prefix_token(";");
                continue;
            }
            rest = after.get(1..)?;
            let is_constant =
                member.first().is_some_and(|t| matches!(&*t.text, "static" | "using" | "typedef"));
            if is_function || is_constant || member.is_empty() {
                continue;
            }
            let mut with_end = member.to_vec();
            with_end.extend(after.first().cloned());
            for statement in Parser::new(&with_end, &self.types).statements() {
                let super::tree::StatementKind::Declare(declared) = statement.kind else {
                    return None;
                };
                let mut count = 1_u64;
                for extent in &declared.extents {
                    let Expression::Number(extent) = extent else { return None };
                    count = count.checked_mul(u64::try_from(*extent).ok()?)?;
                }
                fields.push(Field { name: declared.name.clone(), kind: declared.kind, count });
            }
        }
        Some(fields)
    }

    /// `template __global__ void name<args>(…);`
    fn instantiation(&mut self) {
        let end = (self.at..self.tokens.len()).find(|at| self.text_at(*at) == ";");
        let end = end.unwrap_or(self.tokens.len());
        let words = self.tokens.get(self.at..end).unwrap_or_default();
        if let Some(open) = words.iter().position(|token| &*token.text == "<") {
            let parser = Parser::new(words, &self.types);
            if let (Some(name), Some(close)) =
                (words.get(open.wrapping_sub(1)), parser.template_end(open))
            {
                let inside = words.get(open + 1..close - 1).unwrap_or_default();
                self.declared.instantiations.push((name.text.clone(), split_arguments(inside)));
            }
        }
        self.at = end + 1;
    }

    fn function_or_variable(&mut self) {
        self.function_or_variable_from(self.at);
    }

    /// Reads a declaration: everything up to `;`, or up to the body after a parameter list.
    fn function_or_variable_from(&mut self, start: usize) {
        let mut at = start;
        let mut template = None;
        while self.text_at(at) == "template" && self.text_at(at + 1) == "<" {
            let Some(end) = self.end_of_template(at + 1) else {
                self.at = at;
                return self.skip_declaration();
            };
            template = Some(self.template_params(at + 2, end - 1));
            at = end;
        }
        let is_structure = matches!(self.text_at(at), "struct" | "class" | "union" | "enum");
        if is_structure && template.is_some() {
            // The members of a class template depend on its arguments.
            self.at = at;
            return self.skip_declaration();
        }
        if is_structure && start == self.at && self.is_definition_of_type(at) {
            self.at = at;
            if self.text_at(at) == "enum" {
                return self.enumeration();
            }
            return self.structure();
        }
        let head = at;
        let mut words = Vec::new();
        let mut launch_bounds = None;
        while at < self.tokens.len() {
            match self.text_at(at) {
                ";" => {
                    self.variable(head, at);
                    self.at = at + 1;
                    return;
                }
                "=" | "{" => {
                    self.variable(head, at);
                    self.at = at;
                    return self.skip_declaration();
                }
                "}" => {
                    self.at = at;
                    return;
                }
                "(" => {
                    let before = self.text_at(at - usize::from(at > 0));
                    let end = self.end_of_brackets(at);
                    let inside = self.tokens.get(at + 1..end.saturating_sub(1));
                    let inside = inside.unwrap_or_default();
                    if before == "__launch_bounds__" {
                        let first = split_arguments(inside).into_iter().next().unwrap_or_default();
                        launch_bounds = Some(Parser::new(&first, &self.types).expression());
                        at = end;
                    } else if before.starts_with("__") || before == "alignas" {
                        at = end;
                    } else {
                        words.extend((head..at).map(|at| self.text_at(at)));
                        return self.function(FunctionHead {
                            words,
                            name: before.into(),
                            line: self.tokens.get(at).map_or(0, |token| token.line),
                            is_own: self.tokens.get(at).is_some_and(|token| token.file == 0),
                            params: inside,
                            end,
                            template: template.unwrap_or_default(),
                            launch_bounds,
                        });
                    }
                }
                _ => at += 1,
            }
        }
        self.at = at;
    }

    /// Whether the type that begins at `at` gets its members here.
    fn is_definition_of_type(&self, at: usize) -> bool {
        let next = (at..self.tokens.len())
            .find(|at| matches!(self.text_at(*at), "{" | ";" | "(" | "=" | "*" | "&"));
        next.is_some_and(|next| self.text_at(next) == "{")
    }

    /// `enum Name : type { A = 1, B };`: constants of an integer type.
    fn enumeration(&mut self) {
        let open = (self.at..self.tokens.len()).find(|at| self.text_at(*at) == "{");
        let open = open.unwrap_or(self.at);
        let end = self.end_of_brackets(open);
        let inside = self.tokens.get(open + 1..end.saturating_sub(1)).unwrap_or_default();
        let head = self.tokens.get(self.at + 1..open).unwrap_or_default();
        let mut parts = head.splitn(2, |token| &*token.text == ":");
        let name = parts.next().and_then(<[Token]>::last).map(|token| token.text.clone());
        let kind = parts.next().and_then(|kind| Parser::new(kind, &self.types).type_text());
        let int = || TypeText { words: vec!["int".into()], ..TypeText::default() };
        if let Some(name) = name.filter(|name| !matches!(&**name, "class" | "struct")) {
            self.types.0.insert(name.clone());
            self.declared.types.aliases.insert(name, kind.unwrap_or_else(int));
        }
        let mut before = Expression::Number(-1);
        for words in split_arguments(inside) {
            let Some((name, rest)) = words.split_first() else { continue };
            let value = match rest.split_first() {
                Some((_, value)) => Parser::new(value, &self.types).assignment(),
                None => {
                    let one = Box::new(Expression::Number(1));
                    Expression::Binary("+", Box::new(before), one)
                }
            };
            before = Expression::Name(name.text.clone());
            self.declared.constants.insert(name.text.clone(), value);
        }
        self.skip_declaration();
    }

    /// Constants, if the words from `head` declare some, and dynamic shared memory.
    fn variable(&mut self, head: usize, end: usize) {
        let words = self.tokens.get(head..end).unwrap_or_default();
        let has = |word: &str| words.iter().any(|token| &*token.text == word);
        let is_shared = has("extern") && has("__shared__");
        let is_constant = (has("const") || has("constexpr") || has("static"))
            && !has("__constant__")
            && (!has("__device__") || has("constexpr") || has("const"));
        if !is_shared && !is_constant {
            return;
        }
        let stop = (end..self.tokens.len()).find(|at| self.text_at(*at) == ";");
        let whole = self.tokens.get(head..=stop.unwrap_or(end)).unwrap_or_default();
        for statement in Parser::new(whole, &self.types).statements() {
            if is_shared {
                self.declared.shared.push(statement);
            } else if let StatementKind::Declare(declared) = statement.kind
                && declared.extents.is_empty()
                && let Some(value) = declared.init.or(declared.constructor.into_iter().next())
            {
                self.declared.constants.insert(declared.name, value);
            }
        }
    }

    fn end_of_template(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut at = open;
        while at < self.tokens.len() {
            match self.text_at(at) {
                "(" | "[" | "{" => {
                    at = self.end_of_brackets(at);
                    continue;
                }
                "<" => depth += 1,
                ">" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                ";" => return None,
                _ => {}
            }
            at += 1;
        }
        None
    }

    fn template_params(&self, start: usize, end: usize) -> Vec<TemplateParam> {
        let inside = self.tokens.get(start..end).unwrap_or_default();
        split_arguments(inside).iter().enumerate().map(|(at, p)| template_param(p, at)).collect()
    }

    fn function(&mut self, head: FunctionHead<'_>) {
        let is_kernel = head.words.contains(&"__global__");
        if &*head.name == "rgpu_launch" {
            self.declared.has_host_entry = true;
        }
        // Between the parameters and the body stand `const`, `noexcept`, or a constructor's list.
        let mut at = head.end;
        while at < self.tokens.len() && !matches!(self.text_at(at), "{" | ";" | "}" | "=") {
            at = match self.text_at(at) {
                "(" | "[" => self.end_of_brackets(at),
                _ => at + 1,
            };
        }
        if self.text_at(at) != "{" {
            self.at = at;
            if self.text_at(at) != "}" {
                self.skip_declaration();
            }
            return;
        }
        let end = self.end_of_brackets(at);
        self.at = end;
        let mut types = self.types.clone();
        for param in head.template.iter().filter(|param| param.is_type) {
            types.0.insert(param.name.clone());
        }
        let body = self.tokens.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
        let params = split_arguments(head.params);
        let params = params.iter().enumerate();
        let function = Function {
            name: head.name,
            scope: self.scope(),
            namespaces: self.namespaces(),
            template: head.template,
            params: params.filter_map(|(at, words)| param(words, at, &types)).collect(),
            launch_bounds: head.launch_bounds,
            body: Parser::new(body, &types).statements(),
            line: head.line,
            is_own: head.is_own,
        };
        let is_device = head.words.contains(&"__device__") || head.words.contains(&"constexpr");
        let functions = if is_kernel {
            &mut self.declared.kernels
        } else if is_device {
            &mut self.declared.device_functions
        } else {
            &mut self.declared.host_functions
        };
        functions.push(function);
    }
}

trait StripToken {
    fn strip_prefix_token(&self, text: &str) -> &[Token];
}

impl StripToken for [Token] {
    /// The tokens without a first one that is `text`.
    fn strip_prefix_token(&self, text: &str) -> &[Token] {
        match self.split_first() {
            Some((first, rest)) if &*first.text == text => rest,
            _ => self,
        }
    }
}

/// A function's declaration up to its parameters.
struct FunctionHead<'a> {
    words: Vec<&'a str>,
    name: Rc<str>,
    line: u32,
    is_own: bool,
    params: &'a [Token],
    /// The index after its parameters.
    end: usize,
    template: Vec<TemplateParam>,
    launch_bounds: Option<Expression>,
}

fn template_param(tokens: &[Token], at: usize) -> TemplateParam {
    let equals = tokens.iter().position(|token| &*token.text == "=");
    let (head, default) = match equals {
        Some(equals) => (tokens.get(..equals), tokens.get(equals + 1..)),
        None => (Some(tokens), None),
    };
    let head = head.unwrap_or_default();
    let has = |word: &str| head.iter().any(|token| &*token.text == word);
    let last = head.last().map(|token| token.text.clone());
    let is_type = head.first().is_some_and(|t| matches!(&*t.text, "typename" | "class"));
    let first_is_name = head.len() > 1 || !is_type;
    TemplateParam {
        name: last
            .filter(|name| first_is_name && !is_builtin_type(name))
            .unwrap_or_else(|| format!("unnamed{at}").into()),
        is_type,
        is_bool: has("bool"),
        default: default.unwrap_or_default().to_vec(),
        is_unusual: has("...") || has("template") || has("<"),
    }
}

/// The expressions in `[8][16]`.
fn extents_of(tokens: &[Token], types: &TypeNames) -> Vec<Expression> {
    let parts = tokens.split(|token| &*token.text == "]");
    let inside = parts.filter_map(|part| {
        part.split_first().filter(|(open, _)| &*open.text == "[").map(|(_, inside)| inside)
    });
    inside.map(|part| Parser::new(part, types).expression()).collect()
}

fn param(tokens: &[Token], at: usize, types: &TypeNames) -> Option<Param> {
    let equals = tokens.iter().position(|token| &*token.text == "=");
    let words = tokens.get(..equals.unwrap_or(tokens.len()))?;
    if let [only] = words
        && &*only.text == "void"
    {
        return None;
    }
    let bracket = words.iter().position(|token| &*token.text == "[");
    let is_array = bracket.is_some();
    let (head, extents) = words.split_at_checked(bracket.unwrap_or(words.len()))?;
    // `float (*rows)[16]` has the extents of a row alone.
    let is_row_pointer = is_array && head.last().is_some_and(|token| &*token.text == ")");
    let mut row = extents_of(extents, types);
    if !is_row_pointer && !row.is_empty() {
        row.remove(0);
    }
    let skipped = ["__restrict__", "restrict", "__restrict", "__grid_constant__"];
    let is_bracket = |token: &&Token| matches!(&*token.text, "(" | ")" | "*");
    let head: Vec<Token> = head
        .iter()
        .filter(|token| !skipped.contains(&&*token.text))
        .filter(|token| !is_row_pointer || !is_bracket(token))
        .cloned()
        .collect();
    let is_name = |token: &&Token| {
        let first = token.text.chars().next().unwrap_or(' ');
        (first.is_alphabetic() || first == '_') && !is_builtin_type(&token.text)
    };
    let named = head.len() > 1;
    let name = head.last().filter(is_name).filter(|token| named && &*token.text != "const");
    let kind_tokens = match name {
        Some(_) => head.get(..head.len() - 1)?,
        None => &head,
    };
    let mut parser = Parser::new(kind_tokens, types);
    let kind = parser.type_text().unwrap_or_default();
    Some(Param {
        name: name.map_or_else(|| format!("arg{at}").into(), |token| token.text.clone()),
        kind,
        is_array,
        row,
        tokens: words.to_vec(),
        line: words.first().map_or(0, |token| token.line),
    })
}
