//! What an expression can be made of: types with bounds on their size, and the table of functions.

use std::fmt;

use super::bound::Bound;

/// The type of a value, with how large it can get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int,
    Double,
    /// An int in one place and a double in another.
    Number,
    /// Text of so many [`TEXT_UNIT`]s.
    Text(Bound),
    List(Bound, Box<Type>),
    Map(Bound, Box<Type>),
    Zone,
    Endpoint,
    /// What an empty list or map holds.
    Nothing,
}

/// Text is counted in units of so many bytes, rounded up.
pub(super) const TEXT_UNIT: usize = 16;

impl Type {
    /// A zone's name: a label's value has at most 63 bytes.
    pub(super) const NAME: Self = Self::Text(Bound::of(4));
    /// A number written out: the smallest double takes more than 300 digits.
    const WRITTEN: Self = Self::Text(Bound::of(24));

    pub(super) fn text(length: usize) -> Self {
        Self::Text(Bound::of(1 + (length / TEXT_UNIT) as u64))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Double | Self::Number | Self::Nothing)
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Nothing)
    }

    /// Whether `==` means something.
    fn is_comparable(&self) -> bool {
        match self {
            Self::Zone | Self::Endpoint => false,
            Self::List(_, inner) | Self::Map(_, inner) => inner.is_comparable(),
            _ => true,
        }
    }

    /// A type that covers both.
    pub(super) fn join(&self, other: &Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Nothing, known) | (known, Self::Nothing) => known.clone(),
            (a, b) if a == b => a.clone(),
            (a, b) if a.is_number() && b.is_number() => Self::Number,
            (Self::Text(a), Self::Text(b)) => Self::Text(a.or(*b)),
            (Self::List(a, left), Self::List(b, right)) => {
                Self::List(a.or(*b), Box::new(left.join(right)?))
            }
            (Self::Map(a, left), Self::Map(b, right)) => {
                Self::Map(a.or(*b), Box::new(left.join(right)?))
            }
            _ => return None,
        })
    }

    /// What it takes to copy such a value. `None` where that grows too fast.
    pub(super) fn weight(&self) -> Option<Bound> {
        Some(match self {
            Self::Text(units) => units.plus(Bound::ONE),
            Self::List(length, inner) | Self::Map(length, inner) => {
                length.times(inner.weight()?.plus(Bound::ONE))?.plus(Bound::ONE)
            }
            Self::Zone | Self::Endpoint => Bound::of(4),
            _ => Bound::ONE,
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Double => f.write_str("double"),
            Self::Number => f.write_str("int or double"),
            Self::Text(_) => f.write_str("string"),
            Self::List(_, inner) | Self::Map(_, inner) if **inner == Self::Nothing => {
                f.write_str(if matches!(self, Self::List(..)) { "empty list" } else { "empty map" })
            }
            Self::List(_, inner) => write!(f, "list of {inner}"),
            Self::Map(_, inner) => write!(f, "map to {inner}"),
            Self::Zone => f.write_str("zone"),
            Self::Endpoint => f.write_str("endpoint"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// A field of a zone or an endpoint.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Type,
}

const fn field(name: &'static str, kind: Type) -> Field {
    Field { name, kind }
}

/// What is known about a zone.
pub(super) static ZONE: [Field; 6] = [
    field("name", Type::NAME),
    field("index", Type::Int),
    field("share", Type::Double),
    field("nodes", Type::Int),
    field("endpoints", Type::Int),
    field("expected", Type::Double),
];

/// What is known about an endpoint.
pub(super) static ENDPOINT: [Field; 2] = [field("zone", Type::NAME), field("index", Type::Int)];

/// What a call gives, and how much of its arguments it reads to get there.
pub(super) struct Call {
    pub(super) result: Type,
    pub(super) read: Option<Bound>,
}

/// The type of a call. The error says what is wrong with it.
pub(super) fn call(name: &str, on_value: bool, given: &[Type]) -> Result<Call, String> {
    let Some(result) = operator(name, given).or_else(|| function(name, on_value, given)) else {
        return Err(refusal(name, on_value, given));
    };
    // Elements of lists and maps are reached directly, except by these.
    let reads_all = matches!(name, "_+_" | "_==_" | "_!=_" | "@in" | "math.@min" | "math.@max");
    let read = given.iter().chain([&result]).filter(|kind| reads_all || kind.is_text());
    let read = read.map(Type::weight).try_fold(Bound::NONE, |sum, more| Some(sum.plus(more?)));
    Ok(Call { result, read })
}

fn operator(name: &str, given: &[Type]) -> Option<Type> {
    use Type::{Bool, Double, Int, List, Map, Text};
    Some(match (name, given) {
        ("_?_:_", [Bool, yes, no]) => yes.join(no)?,
        ("_&&_" | "_||_", [Bool, Bool]) | ("!_" | "@not_strictly_false", [Bool]) => Bool,
        ("_==_" | "_!=_", [a, b]) => a.join(b).filter(Type::is_comparable).map(|_| Bool)?,
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b])
            if (a.is_number() && b.is_number()) || (a.is_text() && b.is_text()) =>
        {
            Bool
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [Int, Int]) | ("-_", [Int]) => Int,
        ("_+_" | "_-_" | "_*_" | "_/_", [Double, Double]) | ("-_", [Double]) => Double,
        ("_+_", [Text(a), Text(b)]) => Text(a.plus(*b)),
        ("_+_", [List(a, left), List(b, right)]) => List(a.plus(*b), Box::new(left.join(right)?)),
        ("_[_]", [List(_, inner), Int]) | ("_[_]", [Map(_, inner), Text(_)]) => (**inner).clone(),
        ("@in", [wanted, List(_, inner)]) => {
            wanted.join(inner).filter(Type::is_comparable).map(|_| Bool)?
        }
        ("@in", [Text(_), Map(..)]) => Bool,
        _ => return None,
    })
}

/// Functions as users write them.
const FUNCTIONS: &str = "size, int, double, string, startsWith, endsWith, contains, \
                         math.least, math.greatest, math.ceil, math.floor, math.round, math.abs";

fn function(name: &str, on_value: bool, given: &[Type]) -> Option<Type> {
    use Type::{Bool, Double, Int, List, Map, Text};
    Some(match (name, on_value, given) {
        ("size", _, [Text(_) | List(..) | Map(..)]) => Int,
        ("int", false, [number]) if number.is_number() => Int,
        ("double", false, [number]) if number.is_number() => Double,
        ("string", false, [Text(units)]) => Text(*units),
        ("string", false, [kind]) if kind.is_number() || *kind == Bool => Type::WRITTEN,
        ("startsWith" | "endsWith" | "contains", true, [Text(_), Text(_)]) => Bool,
        ("math.@min" | "math.@max", false, [List(_, inner)]) if inner.is_number() => {
            (**inner).clone()
        }
        ("math.@min" | "math.@max", false, [a]) if a.is_number() => a.clone(),
        ("math.@min" | "math.@max", false, [a, b]) if a.is_number() && b.is_number() => {
            a.join(b)?
        }
        ("math.ceil" | "math.floor" | "math.round" | "math.abs", false, [Double]) => Double,
        ("math.abs", false, [Int]) => Int,
        _ => return None,
    })
}

/// Why there is no function of this name; asked before its arguments are looked at.
pub(super) fn unknown(name: &str) -> Option<String> {
    match name {
        // Written rightly, these are gone by now: the parser turns them into loops and tests.
        "map" | "filter" | "all" | "exists" | "exists_one" | "existsOne" => {
            Some(format!("`{name}` is written as list.{name}(name, expression)"))
        }
        "has" => Some(String::from("`has` is written as has(value.field)")),
        _ if shown(name).is_some() => None,
        _ => Some(format!("unknown function `{name}`; known are {FUNCTIONS}")),
    }
}

fn refusal(name: &str, on_value: bool, given: &[Type]) -> String {
    if name == "_?_:_" {
        return conditional(given);
    }
    let shown = shown(name).unwrap_or_else(|| name.to_owned());
    let types: Vec<String> = given.iter().map(Type::to_string).collect();
    let types = types.join(" and ");
    let int = |kind: &Type| matches!(kind, Type::Int | Type::Number);
    let double = |kind: &Type| matches!(kind, Type::Double | Type::Number);
    if given.iter().any(int) && given.iter().any(double) && given.iter().all(Type::is_number) {
        format!("{shown} cannot be applied to {types}; write double(…) around the int")
    } else if given.is_empty() {
        format!("{shown} needs a value")
    } else if on_value {
        format!("{shown} cannot be called on {types}")
    } else {
        format!("{shown} cannot be applied to {types}")
    }
}

fn conditional(given: &[Type]) -> String {
    match given {
        [Type::Bool, yes, no] => format!("the two answers of `? :` differ: {yes} and {no}"),
        [other, ..] => format!("the condition before `?` must be a bool, not {other}"),
        [] => String::from("`? :` needs a condition"),
    }
}

/// How users know an operator or a function; `None` if there is none of that name.
fn shown(name: &str) -> Option<String> {
    let bare = match name {
        "_[_]" => "[ ]",
        "@in" => "in",
        "@not_strictly_false" => "a condition",
        "math.@min" => "math.least",
        "math.@max" => "math.greatest",
        _ if !name.contains(char::is_alphanumeric) => name.trim_matches('_'),
        _ if FUNCTIONS.split(", ").any(|known| known == name) => name,
        _ => return None,
    };
    Some(format!("`{bare}`"))
}
