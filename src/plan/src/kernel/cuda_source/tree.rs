//! The statements and expressions of a function, as far as launches and indexes need them.

use std::fmt::Write;
use std::rc::Rc;

use super::lex::Token;

/// An expression. Operators have their own spelling.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) enum Expression {
    Number(i64),
    /// A floating-point number with a fraction, a string, or what was not understood.
    Other,
    Name(Rc<str>),
    Call(Box<Expression>, Vec<Expression>),
    Index(Box<Expression>, Box<Expression>),
    Member(Box<Expression>, Rc<str>),
    Unary(&'static str, Box<Expression>),
    /// `i++`, `i--`.
    Postfix(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    /// `=`, `+=` and the like.
    Assign(&'static str, Box<Expression>, Box<Expression>),
    Ternary(Box<Expression>, Box<Expression>, Box<Expression>),
    Cast(TypeText, Box<Expression>),
    List(Vec<Expression>),
    SizeOf(TypeText),
    /// The body of a lambda, which may run at once.
    Lambda(Vec<Statement>),
    Launch(Box<LaunchExpression>),
}

/// `name<args><<<config>>>(arguments)`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct LaunchExpression {
    pub(super) name: Rc<str>,
    /// As written; empty without `<…>`.
    pub(super) template: Vec<Vec<Token>>,
    pub(super) config: Vec<Expression>,
    pub(super) arguments: Vec<Expression>,
    pub(super) line: u32,
}

/// The words of a type, without qualifiers, and its stars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kernel) struct TypeText {
    /// `unsigned`, `int`; a template's arguments follow its name as tokens.
    pub(super) words: Vec<Rc<str>>,
    pub(super) stars: usize,
    pub(super) constant: bool,
    pub(super) reference: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct Statement {
    pub(super) line: u32,
    pub(super) kind: StatementKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) enum StatementKind {
    Declare(Box<Declaration>),
    Expression(Expression),
    If(Expression, Vec<Statement>, Vec<Statement>),
    For(Box<ForLoop>),
    /// A `do` loop is a `while` loop whose condition is not known at its start.
    While(Expression, Vec<Statement>),
    Block(Vec<Statement>),
    Return(Expression),
    /// `break`, `continue`, `goto`.
    Leave,
    /// The operands of inline assembly.
    Assembly(Vec<Expression>),
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct Declaration {
    pub(super) kind: TypeText,
    pub(super) name: Rc<str>,
    pub(super) extents: Vec<Expression>,
    pub(super) init: Option<Expression>,
    /// `dim3 grid(1, 2)`.
    pub(super) constructor: Vec<Expression>,
    pub(super) memory: MemoryKind,
}

/// Where a declared array lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel) enum MemoryKind {
    Local,
    Shared,
    /// `extern __shared__`: its size comes with the launch.
    DynamicShared,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct ForLoop {
    pub(super) start: Vec<Statement>,
    pub(super) condition: Option<Expression>,
    pub(super) steps: Vec<Expression>,
    pub(super) body: Vec<Statement>,
}

impl TypeText {
    pub(super) fn text(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| &**word).collect();
        words.join(" ") + &"*".repeat(self.stars)
    }
}

impl Expression {
    /// The same text for the same expression, to find facts about it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    // Writing to a String cannot fail.
    fn write(&self, text: &mut String) {
        let list = |text: &mut String, items: &[Expression]| {
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                item.write(text);
            }
        };
        match self {
            Self::Number(value) => {
                let _ = write!(text, "{value}");
            }
            Self::Other | Self::Lambda(_) => text.push('?'),
            Self::Name(name) => text.push_str(name),
            Self::Call(function, arguments) => {
                function.write(text);
                text.push('(');
                list(text, arguments);
                text.push(')');
            }
            Self::Index(base, index) => {
                base.write(text);
                text.push('[');
                index.write(text);
                text.push(']');
            }
            Self::Member(base, name) => {
                base.write(text);
                let _ = write!(text, ".{name}");
            }
            Self::Unary(operator, inner) => {
                text.push_str(operator);
                inner.write(text);
            }
            Self::Postfix(operator, inner) => {
                inner.write(text);
                text.push_str(operator);
            }
            Self::Binary(operator, left, right) | Self::Assign(operator, left, right) => {
                text.push('(');
                left.write(text);
                let _ = write!(text, " {operator} ");
                right.write(text);
                text.push(')');
            }
            Self::Ternary(condition, left, right) => {
                condition.write(text);
                text.push('?');
                left.write(text);
                text.push(':');
                right.write(text);
            }
            Self::Cast(_, inner) => inner.write(text),
            Self::List(items) => {
                text.push('{');
                list(text, items);
                text.push('}');
            }
            Self::SizeOf(kind) => {
                let _ = write!(text, "sizeof({})", kind.text());
            }
            Self::Launch(launch) => text.push_str(&launch.name),
        }
    }

    /// Calls `look` for this expression and those inside it.
    pub(super) fn visit<'a>(&'a self, look: &mut dyn FnMut(&'a Expression)) {
        look(self);
        match self {
            Self::Call(function, arguments) => {
                function.visit(look);
                arguments.iter().for_each(|argument| argument.visit(look));
            }
            Self::Index(left, right)
            | Self::Binary(_, left, right)
            | Self::Assign(_, left, right) => {
                left.visit(look);
                right.visit(look);
            }
            Self::Member(inner, _)
            | Self::Unary(_, inner)
            | Self::Postfix(_, inner)
            | Self::Cast(_, inner) => inner.visit(look),
            Self::Ternary(condition, left, right) => {
                condition.visit(look);
                left.visit(look);
                right.visit(look);
            }
            Self::List(items) => items.iter().for_each(|item| item.visit(look)),
            Self::Launch(launch) => {
                launch.config.iter().chain(&launch.arguments).for_each(|e| e.visit(look));
            }
            Self::Lambda(body) => visit_expressions(body, look),
            Self::Number(_) | Self::Other | Self::Name(_) | Self::SizeOf(_) => {}
        }
    }
}

/// Calls `look` for every expression of the statements.
pub(super) fn visit_expressions<'a>(
    statements: &'a [Statement],
    look: &mut dyn FnMut(&'a Expression),
) {
    for statement in statements {
        match &statement.kind {
            StatementKind::Declare(declared) => {
                let own = declared.extents.iter().chain(&declared.init);
                own.chain(&declared.constructor).for_each(|e| e.visit(look));
            }
            StatementKind::Expression(e) | StatementKind::Return(e) => e.visit(look),
            StatementKind::If(condition, then, otherwise) => {
                condition.visit(look);
                visit_expressions(then, look);
                visit_expressions(otherwise, look);
            }
            StatementKind::For(looped) => {
                visit_expressions(&looped.start, look);
                looped.condition.iter().chain(&looped.steps).for_each(|e| e.visit(look));
                visit_expressions(&looped.body, look);
            }
            StatementKind::While(condition, body) => {
                condition.visit(look);
                visit_expressions(body, look);
            }
            StatementKind::Block(body) => visit_expressions(body, look),
            StatementKind::Assembly(operands) => operands.iter().for_each(|e| e.visit(look)),
            StatementKind::Leave => {}
        }
    }
}
