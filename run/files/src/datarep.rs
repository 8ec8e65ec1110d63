//! Data representations: how values are written to the file (MPI 5.0, section 14.5).

use std::sync::Arc;

use margay_core_datatype::{Basic, Combiner, Datatype};
use margay_run_engine::{Data, copy};
use margay_sys_os::user::Mem;

use super::Files;
use margay_run_mpi::constants::limit::MPI_MAX_DATAREP_STRING;
use margay_run_mpi::error::*;
use margay_run_mpi::{external, fail};

/// A data representation that the program registered: its functions. They must not communicate.
pub trait Conversion: Send + Sync {
    /// Returns the bytes that an element of a predefined datatype takes in the file, or the code
    /// that the function returned.
    ///
    /// # Errors
    /// The code that the program's function returned.
    fn extent(&self, datatype: u32) -> std::result::Result<i64, i32>;

    /// Turns `count` items at `file` into elements of the datatype at `user`, beginning with item
    /// `position`.
    ///
    /// # Errors
    /// The code that the program's function returned.
    fn read(
        &self,
        user: &Mem,
        datatype: u32,
        count: u64,
        file: &Mem,
    ) -> std::result::Result<(), i32>;

    /// The reverse of [`read`](Self::read).
    ///
    /// # Errors
    /// The code that the program's function returned.
    fn write(
        &self,
        user: &Mem,
        datatype: u32,
        count: u64,
        file: &Mem,
    ) -> std::result::Result<(), i32>;

    /// Whether values read, and values written, are as in memory (`MPI_CONVERSION_FN_NULL`).
    fn is_native(&self, write: bool) -> bool;
}

/// A data representation.
#[derive(Clone)]
pub(crate) enum Rep {
    /// As in memory.
    Native,
    /// As in memory: all machines that Margay runs on are alike.
    Internal,
    /// Big-endian, IEEE, with sizes that are the same everywhere.
    External,
    /// As functions of the program say.
    User(Arc<str>, Arc<dyn Conversion>),
}

/// Elements of a datatype in memory: what a data access names.
#[derive(Clone)]
pub struct Elements {
    /// Where they are.
    pub mem: Mem,
    /// How many.
    pub count: u64,
    /// Of which type.
    pub datatype: Arc<Datatype>,
}

impl Rep {
    /// Returns the name.
    pub fn name(&self) -> &str {
        match self {
            Rep::Native => "native",
            Rep::Internal => "internal",
            Rep::External => "external32",
            Rep::User(name, _) => name,
        }
    }

    /// Whether data is in the file as it is in memory.
    fn is_native(&self, write: bool) -> bool {
        match self {
            Rep::Native | Rep::Internal => true,
            Rep::External => false,
            Rep::User(_, conversion) => conversion.is_native(write),
        }
    }

    /// Returns the bytes of a predefined datatype in the file.
    fn leaf(&self, basic: Basic) -> Result<u64> {
        match self {
            Rep::Native | Rep::Internal => Ok(basic.size()),
            Rep::External => {
                let one = Datatype::basic(basic);
                Ok(external::size(&one, 1).expect("a few bytes"))
            }
            Rep::User(name, conversion) => {
                let extent = (conversion.extent(basic.handle() as u32)).map_err(|code| {
                    let text = format!(
                        "the extent function of data representation '{name}' returned {code} for {}",
                        basic.name()
                    );
                    Error::new(MPI_ERR_CONVERSION, text)
                })?;
                match u64::try_from(extent) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => fail!(
                        MPI_ERR_CONVERSION,
                        "the extent function of data representation '{name}' says that {} takes {extent} bytes",
                        basic.name()
                    ),
                }
            }
        }
    }

    /// Returns the datatype as it lies in the file: the same construction over values of the file's
    /// sizes.
    ///
    /// # Errors
    /// When a function of the program fails, or the result is beyond 63 bits.
    pub fn in_file(&self, datatype: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        if matches!(self, Rep::Native | Rep::Internal) {
            return Ok(datatype.clone());
        }
        let byte = || Arc::new(Datatype::basic(Basic::Byte));
        let new = match datatype.combiner() {
            Combiner::Named(basic) => Datatype::contiguous(self.leaf(*basic)? as i64, &byte())?,
            Combiner::Marker(_) => return Ok(datatype.clone()),
            Combiner::ValueIndex { value, index } => {
                let bytes = self.in_file(value)?.size() + self.in_file(index)?.size();
                Datatype::contiguous(bytes as i64, &byte())?
            }
            Combiner::Dup { old } => return self.in_file(old),
            Combiner::Contiguous { count, old } => {
                Datatype::contiguous(*count, &self.in_file(old)?)?
            }
            Combiner::Vector {
                count,
                blocklength,
                stride,
                old,
            } => Datatype::vector(*count, *blocklength, *stride, &self.in_file(old)?)?,
            Combiner::Hvector {
                count,
                blocklength,
                stride,
                old,
            } => Datatype::hvector(*count, *blocklength, *stride, &self.in_file(old)?)?,
            Combiner::Indexed {
                blocklengths,
                displacements,
                old,
            } => Datatype::indexed(blocklengths, displacements, &self.in_file(old)?)?,
            Combiner::Hindexed {
                blocklengths,
                displacements,
                old,
            } => Datatype::hindexed(blocklengths, displacements, &self.in_file(old)?)?,
            Combiner::IndexedBlock {
                blocklength,
                displacements,
                old,
            } => Datatype::indexed_block(*blocklength, displacements, &self.in_file(old)?)?,
            Combiner::HindexedBlock {
                blocklength,
                displacements,
                old,
            } => Datatype::hindexed_block(*blocklength, displacements, &self.in_file(old)?)?,
            Combiner::Struct {
                blocklengths,
                displacements,
                types,
            } => {
                let types: Vec<_> = types
                    .iter()
                    .map(|t| self.in_file(t))
                    .collect::<Result<_>>()?;
                Datatype::structure(blocklengths, displacements, &types)?
            }
            Combiner::Subarray {
                sizes,
                subsizes,
                starts,
                order,
                old,
            } => Datatype::subarray(sizes, subsizes, starts, *order, &self.in_file(old)?)?,
            Combiner::Darray {
                size,
                rank,
                gsizes,
                distributions,
                dargs,
                psizes,
                order,
                old,
            } => Datatype::darray(
                *size,
                *rank,
                gsizes,
                distributions,
                dargs,
                psizes,
                *order,
                &self.in_file(old)?,
            )?,
            Combiner::Resized { lb, extent, old } => {
                Datatype::resized(*lb, *extent, &self.in_file(old)?)?
            }
        };
        Ok(Arc::new(new))
    }
}

/// The elements of an access as they are in the file: the very memory, or a copy that is converted.
pub(crate) struct Prepared {
    /// What goes to the file or comes from it.
    pub data: Data,
    /// What is to be done when it has come.
    pub finish: Finish,
}

/// Turns what was read into elements.
pub(crate) struct Finish(Option<Converted>);

struct Converted {
    rep: Rep,
    elements: Elements,
    handle: u32,
    file: Mem,
    /// Bytes of an element in the file.
    each: u64,
}

impl Rep {
    /// Readies the elements for an access; `handle` is the datatype's, for functions of the
    /// program.
    ///
    /// # Errors
    /// When a function of the program fails.
    pub fn prepare(&self, elements: Elements, handle: u32, write: bool) -> Result<Prepared> {
        if self.is_native(write) {
            return Ok(Prepared {
                data: Data::typed(elements.mem, elements.count, &elements.datatype),
                finish: Finish(None),
            });
        }
        let each = self.in_file(&elements.datatype)?.size();
        let Some(bytes) = each.checked_mul(elements.count).filter(|&b| b < 1 << 62) else {
            fail!(MPI_ERR_COUNT, "{} elements are too many", elements.count);
        };
        let (count, datatype) = (elements.count, elements.datatype.clone());
        let native = Data::typed(elements.mem.clone(), count, &datatype);
        let file = match self {
            _ if !write => Mem::owned(bytes as usize),
            Rep::User(name, conversion) => {
                let file = Mem::owned(bytes as usize);
                let items = count * datatype.elements();
                (conversion.write(&elements.mem, handle, items, &file))
                    .map_err(|code| failed("write", name, code))?;
                file
            }
            _ => {
                let length = native.size() as usize;
                let packed = Mem::owned(length);
                copy(&native, &Data::bytes(packed.clone(), length as u64));
                let external = packed.with_bytes(0, length, |bytes| {
                    external::from_native(&datatype, count, bytes)
                });
                Mem::from_vec(external)
            }
        };
        Ok(Prepared {
            data: Data::bytes(file.clone(), bytes),
            finish: Finish((!write).then(|| Converted {
                rep: self.clone(),
                elements,
                handle,
                file,
                each,
            })),
        })
    }
}

impl Finish {
    /// Converts the `bytes` that have come from the file. Returns the bytes in memory that they
    /// are.
    ///
    /// # Errors
    /// When a function of the program fails.
    pub fn run(self, bytes: u64) -> Result<u64> {
        let Some(converted) = self.0 else {
            return Ok(bytes);
        };
        let Converted {
            rep,
            elements,
            handle,
            file,
            each,
        } = converted;
        let datatype = &elements.datatype;
        let whole = bytes.checked_div(each).unwrap_or(0);
        if let Rep::User(name, conversion) = &rep {
            let items = whole * datatype.elements();
            (conversion.read(&elements.mem, handle, items, &file))
                .map_err(|code| failed("read", name, code))?;
            return Ok(whole * datatype.size());
        }
        // The last element may have come in part.
        let begun = bytes.div_ceil(each.max(1));
        let native = file.with_bytes(0, (begun * each) as usize, |external| {
            external::to_native(datatype, begun, external)
        });
        let valid =
            whole * datatype.size() + external::native_prefix(datatype, bytes - whole * each);
        let target = Data::typed(elements.mem.clone(), elements.count, datatype);
        copy(
            &Data::bytes(Mem::from_vec(native), valid),
            &target.range(0, valid),
        );
        Ok(valid)
    }
}

fn failed(which: &str, name: &str, code: i32) -> Error {
    Error::new(
        MPI_ERR_CONVERSION,
        format!("the {which} function of data representation '{name}' returned {code}"),
    )
}

impl Files<'_> {
    /// `MPI_Register_datarep`
    ///
    /// # Errors
    /// When the name is taken or too long.
    pub fn register_datarep(&self, name: &str, conversion: Arc<dyn Conversion>) -> Result<()> {
        if name.is_empty() || name.len() >= MPI_MAX_DATAREP_STRING {
            fail!(
                MPI_ERR_ARG,
                "the name of the data representation has {} bytes; 1 to {} are allowed",
                name.len(),
                MPI_MAX_DATAREP_STRING - 1
            );
        }
        let mut known = self.state.datareps();
        if matches!(name, "native" | "internal" | "external32") || known.contains_key(name) {
            fail!(
                MPI_ERR_DUP_DATAREP,
                "data representation '{name}' is defined already; choose another name"
            );
        }
        known.insert(name.into(), conversion);
        Ok(())
    }

    /// Returns the data representation with a name.
    pub(super) fn datarep(&self, name: &str) -> Result<Rep> {
        Ok(match name {
            "native" => Rep::Native,
            "internal" => Rep::Internal,
            "external32" => Rep::External,
            _ => match self.state.datareps().get(name) {
                Some(conversion) => Rep::User(name.into(), conversion.clone()),
                None => fail!(
                    MPI_ERR_UNSUPPORTED_DATAREP,
                    "there is no data representation '{name}'; use native, internal, external32 or register it"
                ),
            },
        })
    }
}
