//! The values of an ABI's constants, and the tables between them and the standard's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::kinds::{self, Unknown};
use crate::header::Constant;
use crate::prototype::HANDLES;

/// The value of a constant in an ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    /// The address of this symbol.
    Symbol(String),
}

/// Predefined handles of the standard have ten bits; what it has removed has another bit above
/// them.
const PREDEFINED: i64 = 1024;

/// The constants of an ABI by their names.
#[derive(Default)]
pub struct Values(BTreeMap<String, Vec<Value>>);

impl Values {
    /// Reads lines of a name and a value; `#` begins a comment. A name that comes again has another
    /// value in older versions: programs may pass it, but it is not given out.
    ///
    /// # Errors
    /// When a line is not understood.
    pub fn read(text: &str) -> Result<Values, String> {
        let mut values = BTreeMap::new();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, value) = line
                .split_once(' ')
                .ok_or_else(|| format!("`{line}` is not a name and a value"))?;
            let number = match value.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16).ok(),
                None => value.parse().ok(),
            };
            let value = number.map_or_else(|| Value::Symbol(value.to_owned()), Value::Number);
            let all: &mut Vec<Value> = values.entry(name.to_owned()).or_default();
            all.push(value);
        }
        Ok(Values(values))
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)?.first()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.numbers(name).next()
    }

    /// All values of a name, that which is given out first.
    fn numbers(&self, name: &str) -> impl Iterator<Item = i64> {
        let all = self.0.get(name).into_iter().flatten();
        all.filter_map(|value| match value {
            Value::Number(n) => Some(*n),
            Value::Symbol(_) => None,
        })
    }
}

/// What a handle's constants are called in `run/mpi`: `CommHandle`.
fn handle_of(constant: &Constant) -> Option<&str> {
    constant.ty.strip_suffix("Handle")
}

/// The standard's number of a constant that is not another's name.
fn standard(constant: &Constant) -> Option<i64> {
    constant.value.parse().ok()
}

/// Returns the constants as C has them in this ABI.
pub fn defines(constants: &[Constant], values: &Values) -> String {
    let mut text = String::new();
    let mut symbols = Vec::new();
    for constant in constants {
        let name = &constant.name;
        let Some(value) = values.get(name) else {
            continue;
        };
        let line = match (handle_of(constant), value) {
            (Some("File"), Value::Number(n)) => {
                format!("#define {name} ((MPI_File){n})")
            }
            (Some(handle), Value::Number(n)) => format!("#define {name} ((MPI_{handle})0x{n:08x})"),
            (Some(handle), Value::Symbol(symbol)) => {
                if !symbols.contains(symbol) {
                    writeln!(text, "extern const struct margay_object {symbol};")
                        .expect("a string grows");
                    symbols.push(symbol.clone());
                }
                format!("#define {name} ((MPI_{handle})(uintptr_t)&{symbol})")
            }
            (None, Value::Number(n)) => format!("#define {name} ({n})"),
            (None, Value::Symbol(symbol)) => format!("#define {name} {symbol}"),
        };
        text += &line;
        text.push('\n');
    }
    text
}

/// Returns `tables.h`: conversions of handles and enumerations in both directions.
///
/// # Errors
/// When an ABI's values cannot be distinguished.
pub fn tables(
    constants: &[Constant],
    values: &Values,
    integers: &Values,
) -> Result<String, String> {
    let mut text = String::from("/* Printed by `cargo xtask stage` from values.txt. */\n");
    let by_address = matches!(values.get("MPI_COMM_WORLD"), Some(Value::Symbol(_)));
    if by_address {
        text += &names_by_address(constants, values, integers);
    }
    for handle in HANDLES {
        let of_kind: Vec<&Constant> = constants
            .iter()
            .filter(|c| handle_of(c) == Some(handle) && standard(c).is_some())
            .filter(|c| values.get(&c.name).is_some())
            .collect();
        text += &if by_address {
            address_handle(handle)
        } else if handle == "Datatype" {
            table_of_datatypes(&of_kind, values)?
        } else {
            number_handle(handle, &of_kind, values)
        };
    }
    for kind in &kinds::ENUMERATIONS {
        text += &enumeration(kind, constants, values);
    }
    for (name, prefix) in kinds::FLAGS {
        text += &flags(name, prefix, constants, values);
    }
    Ok(text)
}

/// Returns `integers.h`: what the integers of predefined handles stand for in Fortran, where they
/// are not the handles themselves.
pub fn integers(constants: &[Constant], values: &Values, integers: &Values) -> String {
    let mut text = String::from("/* Printed by `cargo xtask stage` from integers.txt. */\n");
    for handle in HANDLES {
        writeln!(
            text,
            "static const void *const integers_{}[] = {{",
            handle.to_lowercase()
        )
        .expect("a string grows");
        let mut lines = BTreeMap::new();
        for constant in constants.iter().filter(|c| handle_of(c) == Some(handle)) {
            if let (Some(n), Some(Value::Symbol(symbol))) =
                (integers.number(&constant.name), values.get(&constant.name))
            {
                lines.entry(n).or_insert(symbol);
            }
        }
        for (n, symbol) in lines {
            writeln!(text, "    [{n}] = &{symbol},").expect("a string grows");
        }
        text += "};\n";
    }
    text
}

/// Returns `fortran_constants.h`: the predefined handles as Fortran has them, as a list of
/// `CONSTANT(name, integer)`.
pub fn in_fortran(constants: &[Constant], values: &Values, integers: &Values) -> String {
    let mut text =
        String::from("/* Printed by `cargo xtask stage` from values.txt and integers.txt. */\n");
    let handles = constants.iter().filter(|c| handle_of(c).is_some());
    let mut all: BTreeMap<&str, i64> = handles
        .filter_map(|c| Some((c.name.as_str(), values.number(&c.name)?)))
        .collect();
    all.extend(
        integers
            .0
            .iter()
            .filter_map(|(name, all)| match all.first() {
                Some(Value::Number(n)) => Some((name.as_str(), *n)),
                _ => None,
            }),
    );
    for (name, value) in all {
        let (name, value) = (name.to_lowercase(), value as u32 as i32);
        writeln!(text, "CONSTANT({name}, {value})").expect("a string grows");
    }
    text
}

/// A handle that is the address of an object with the standard's handle in it.
fn address_handle(handle: &str) -> String {
    let lower = handle.to_lowercase();
    format!(
        r"
static inline abi_handle to_{lower}(MPI_{handle} handle)
{{
    intptr_t value = (intptr_t)handle;
    if (value < 0) return (abi_handle)(value & 0x7fffffff);
    if (unlikely((uintptr_t)value - margay_face_first > margay_face_span)) return NO_HANDLE;
    return (abi_handle)((const struct margay_object *)value)->handle;
}}

static inline MPI_{handle} from_{lower}(abi_handle handle)
{{
    uintptr_t value = (uintptr_t)handle;
    if (value >= PREDEFINED) return (MPI_{handle})(value | (uintptr_t)1 << 63);
    return (MPI_{handle})(uintptr_t)margay_face_objects[value % OBJECTS];
}}
"
    )
}

fn names_by_address(constants: &[Constant], values: &Values, integers: &Values) -> String {
    let mut objects = BTreeMap::new();
    let mut older = Vec::new();
    let mut in_fortran = BTreeMap::new();
    for constant in constants.iter().filter(|c| handle_of(c).is_some()) {
        let Some(n) = standard(constant) else {
            continue;
        };
        let integer = integers.number(&constant.name).unwrap_or(-1);
        let of_name = values.0.get(&constant.name).into_iter().flatten();
        for (i, value) in of_name.enumerate() {
            match value {
                Value::Symbol(symbol) if i == 0 => {
                    objects.insert(n, symbol);
                    in_fortran.insert(n, integer);
                }
                Value::Symbol(symbol) => older.push((n, symbol)),
                Value::Number(_) => {}
            }
        }
    }
    let mut text = format!(
        "\n#define OBJECTS {PREDEFINED}\n#define OLDER {}\n__attribute__((visibility(\"hidden\"))) extern const void *const margay_face_objects[OBJECTS], *const margay_face_older[OLDER];\n\
         /* Where the objects lie: programs may pass anything where an argument does not count. */\n\
         __attribute__((visibility(\"hidden\"))) extern uintptr_t margay_face_first, margay_face_span;\n#ifdef MARGAY_FACE_DATA\n",
        older.len()
    );
    for (n, symbol) in objects.iter().chain(older.iter().map(|(n, s)| (n, s))) {
        let integer = in_fortran.get(n).unwrap_or(&-1);
        writeln!(
            text,
            "const struct margay_object {symbol} = {{{n}, {integer}}};"
        )
        .expect("a string grows");
    }
    text += "const void *const margay_face_older[OLDER] = {\n";
    for (_, symbol) in &older {
        writeln!(text, "    &{symbol},").expect("a string grows");
    }
    text += "};\nuintptr_t margay_face_first, margay_face_span;\n";
    text += "const void *const margay_face_objects[OBJECTS] = {\n";
    for (n, symbol) in &objects {
        writeln!(text, "    [{}] = &{symbol},", n % PREDEFINED).expect("a string grows");
    }
    text + "};\n#endif\n"
}

/// A handle that is a number: of the standard's handle with the highest bit, where it is not
/// predefined.
fn number_handle(handle: &str, of_kind: &[&Constant], values: &Values) -> String {
    let lower = handle.to_lowercase();
    let is_file = handle == "File";
    let mut to = String::new();
    let mut from = String::new();
    for c in of_kind {
        let (name, n) = (&c.name, standard(c).expect("a number"));
        let case = values.number(name).expect("a number") as u32 as i32;
        writeln!(to, "    case {case}: return (abi_handle){n};").expect("a string grows");
        writeln!(from, "    case {n}: return {name};").expect("a string grows");
    }
    let null = of_kind.first().map_or("0", |c| c.name.as_str());
    let (dynamic_to, dynamic_from, number) = if is_file {
        (
            "(uintptr_t)handle >= PREDEFINED) return (abi_handle)handle",
            "(MPI_File)value",
            "(intptr_t)handle",
        )
    } else {
        (
            "handle < 0) return (abi_handle)(uintptr_t)(handle & 0x7fffffff)",
            "(int)((unsigned)value | 0x80000000u)",
            "handle",
        )
    };
    format!(
        r"
static inline abi_handle to_{lower}(MPI_{handle} handle)
{{
    if ({dynamic_to};
    switch ({number}) {{
{to}    default: return NO_HANDLE;
    }}
}}

static inline MPI_{handle} from_{lower}(abi_handle handle)
{{
    uintptr_t value = (uintptr_t)handle;
    if (value >= PREDEFINED) return {dynamic_from};
    switch (value) {{
{from}    default: return {null};
    }}
}}
"
    )
}

/// The many datatypes by tables: the lowest byte of an MPICH handle is the number of the type, or
/// of a pair of types.
fn table_of_datatypes(of_kind: &[&Constant], values: &Values) -> Result<String, String> {
    let mut by_byte: [BTreeMap<i64, i64>; 2] = Default::default();
    let mut back = BTreeMap::new();
    for c in of_kind {
        let n = standard(c).expect("a number");
        for value in values.numbers(&c.name) {
            back.entry(n % PREDEFINED).or_insert(value);
            let table = match value >> 24 {
                0x4c => &mut by_byte[0],
                0x8c => &mut by_byte[1],
                _ => continue,
            };
            if table.insert(value & 0xff, n).is_some() {
                return Err(format!("{} has the number of another datatype", c.name));
            }
        }
    }
    let first = back.keys().min().copied().unwrap_or(0);
    let most = back.keys().max().copied().unwrap_or(0) - first + 1;
    let mut text = format!("\n#define FIRST_TYPE {first}\n#define TYPES {most}\n");
    text += "__attribute__((visibility(\"hidden\"))) extern const uint16_t margay_face_types[256], margay_face_pairs[8];\n__attribute__((visibility(\"hidden\"))) extern const int margay_face_names[TYPES];\n#ifdef MARGAY_FACE_DATA\n";
    for (name, table) in [("types[256]", &by_byte[0]), ("pairs[8]", &by_byte[1])] {
        writeln!(text, "const uint16_t margay_face_{name} = {{").expect("a string grows");
        for (byte, n) in table {
            writeln!(text, "    [{byte}] = {n},").expect("a string grows");
        }
        text += "};\n";
    }
    text += "const int margay_face_names[TYPES] = {\n";
    for (n, value) in &back {
        writeln!(text, "    [{}] = {},", n - first, *value as u32 as i32).expect("a string grows");
    }
    text += "};\n#endif\n";
    text += r"
static inline abi_handle to_datatype(MPI_Datatype handle)
{
    unsigned value = (unsigned)handle;
    unsigned known = 0;
    if (value >> 24 == 0x4c) {
        known = margay_face_types[value & 0xff];
    } else if (handle < 0) {
        if (value >> 24 != 0x8c) return (abi_handle)(uintptr_t)(value & 0x7fffffff);
        known = margay_face_pairs[value & 7];
    } else if (handle == MPI_DATATYPE_NULL) {
        return (abi_handle)FIRST_TYPE;
    }
    if (unlikely(!known)) return NO_HANDLE;
    return (abi_handle)(uintptr_t)known;
}

static inline MPI_Datatype from_datatype(abi_handle handle)
{
    uintptr_t value = (uintptr_t)handle;
    if (value >= PREDEFINED) return (int)((unsigned)value | 0x80000000u);
    value = value % 1024 - FIRST_TYPE;
    return value < TYPES && margay_face_names[value] ? margay_face_names[value] : MPI_DATATYPE_NULL;
}
";
    Ok(text)
}

fn enumeration(kind: &kinds::Enumeration, constants: &[Constant], values: &Values) -> String {
    let mut to: BTreeMap<i64, i64> = BTreeMap::new();
    let mut from: BTreeMap<i64, i64> = BTreeMap::new();
    for constant in constants.iter().filter(|c| kind.has(&c.name)) {
        if let (Some(n), Some(value)) = (standard(constant), values.number(&constant.name)) {
            let value = i64::from(value as u32 as i32);
            to.entry(value).or_insert(n);
            from.entry(n).or_insert(value);
        }
    }
    let name = kind.name;
    if name == "error" {
        // A class that the ABI does not have must not look like another one.
        let all = constants.iter().filter(|c| kind.has(&c.name));
        for constant in all.filter(|c| values.number(&c.name).is_none()) {
            let like = match constant.name.as_str() {
                "MPI_ERR_ERRHANDLER" | "MPI_ERR_ABI" => "MPI_ERR_ARG",
                _ => "MPI_ERR_OTHER",
            };
            if let (Some(n), Some(value)) = (standard(constant), values.number(like)) {
                from.entry(n).or_insert(value);
            }
        }
    }
    let fast = match kind.unknown {
        Unknown::Negative => "    if (value >= 0) return value;\n",
        _ => "",
    };
    let cases = |pairs: &BTreeMap<i64, i64>| {
        pairs.iter().fold(String::new(), |mut text, (a, b)| {
            writeln!(text, "    case {a}: return {b};").expect("a string grows");
            text
        })
    };
    let unknown = match kind.unknown {
        Unknown::Kept if name == "error" => {
            // Classes and codes of the program begin behind the last one of the library.
            return format!(
                "\nstatic inline int to_error(int value)\n{{\n    switch (value) {{\n{}    default: return value > MPI_ERR_LASTCODE ? value - MPI_ERR_LASTCODE + ABI_ERR_LASTCODE : value;\n    }}\n}}\n\
                 \nstatic inline int from_error(int value)\n{{\n    switch (value) {{\n{}    default: return value > ABI_ERR_LASTCODE ? value - ABI_ERR_LASTCODE + MPI_ERR_LASTCODE : value;\n    }}\n}}\n",
                cases(&to),
                cases(&from)
            );
        }
        Unknown::Kept => "value",
        Unknown::Wrong => "-1",
        Unknown::Negative => "value - 1000",
    };
    format!(
        "\nstatic inline int to_{name}(int value)\n{{\n{fast}    switch (value) {{\n{}    default: return {unknown};\n    }}\n}}\n\
         \nstatic inline int from_{name}(int value)\n{{\n{fast}    switch (value) {{\n{}    default: return value;\n    }}\n}}\n",
        cases(&to),
        cases(&from)
    )
}

fn flags(name: &str, names: &[&str], constants: &[Constant], values: &Values) -> String {
    let mut to = String::new();
    let mut from = String::new();
    let mut all = 0;
    for constant in constants
        .iter()
        .filter(|c| names.contains(&c.name.as_str()))
    {
        if let (Some(n), Some(value)) = (standard(constant), values.number(&constant.name)) {
            writeln!(to, "    if (value & {value}) flags |= {n};").expect("a string grows");
            writeln!(from, "    if (value & {n}) flags |= {value};").expect("a string grows");
            all |= value;
        }
    }
    format!(
        "\nstatic inline int to_{name}(int value)\n{{\n    int flags = value & ~{all} ? -1 : 0;\n{to}    return flags;\n}}\n\
         \nstatic inline int from_{name}(int value)\n{{\n    int flags = 0;\n{from}    return flags;\n}}\n"
    )
}
