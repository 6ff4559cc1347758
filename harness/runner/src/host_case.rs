//! The contents of one case in host memory, and calls of the reference on the CPU, which computes
//! the expected outputs.

use crate::abi::AbiCase;
use crate::compare::count_unwritten_by_reference;
use crate::fault::{Fault, Result};
use crate::generate;
use crate::host_memory::HostBuffer;
use crate::library::HostReference;
use crate::poison::Poison;
use rgpu_case::{Arg, Case, ErrorClass, Role};
use std::ffi::c_void;
use std::path::Path;
use std::time::Instant;

/// A case with filled inputs. The arguments of all groups (of a grouped problem) are in one list,
/// group by group.
pub(crate) struct HostCase<'a> {
    pub(crate) case: &'a Case,
    pub(crate) args: Vec<HostArg<'a>>,
}

pub(crate) struct HostArg<'a> {
    pub(crate) spec: &'a Arg,
    pub(crate) group: usize,
    /// Initial contents of inputs. `None` for scalars, and for outputs, which start as poison.
    pub(crate) initial: Option<HostBuffer>,
    /// The little-endian bits of a scalar, in the low bytes. Boxed so that its address is stable.
    pub(crate) scalar: Box<u64>,
}

impl<'a> HostCase<'a> {
    pub(crate) fn generate(case: &'a Case, seed: u64, folder: &Path) -> Result<HostCase<'a>> {
        let mut args = Vec::new();
        for (group, members) in case.groups.iter().enumerate() {
            for (position, arg) in members.args.iter().enumerate() {
                let key = generate::arg_key(seed, arg, group, position);
                let initial = match arg.role {
                    Role::In | Role::InOut => Some(generate::contents(arg, key, folder)?),
                    Role::Out | Role::Scalar => None,
                };
                let bits = arg.value.map_or(0, |value| arg.dtype.encode(value));
                args.push(HostArg { spec: arg, group, initial, scalar: Box::new(bits.to_le()) });
            }
        }
        Ok(HostCase { case, args })
    }

    /// Whether the tensors of both have the same sizes, order and contents, so that one copy in
    /// device memory can serve both.
    pub(crate) fn same_tensors(&self, other: &HostCase<'_>) -> bool {
        self.args.len() == other.args.len()
            && self.args.iter().zip(&other.args).all(|(a, b)| {
                a.spec.role == b.spec.role
                    && a.size_bytes() == b.size_bytes()
                    && a.initial.as_ref().map(HostBuffer::bytes)
                        == b.initial.as_ref().map(HostBuffer::bytes)
            })
    }
}

impl HostArg<'_> {
    pub(crate) fn size_bytes(&self) -> usize {
        self.spec.bytes().unwrap_or(0) as usize // the input check rejects sizes that overflow
    }

    /// The tensor's contents before a launch: the initial contents, or poison.
    pub(crate) fn before_launch(&self, poison: Poison) -> Result<HostBuffer> {
        match &self.initial {
            Some(initial) => HostBuffer::copy_of(initial.bytes()),
            None => {
                let mut buffer = HostBuffer::new(self.size_bytes())?;
                poison.fill(self.spec.dtype, buffer.bytes_mut());
                Ok(buffer)
            }
        }
    }
}

/// Memory of the reference: own copies of the inputs, and poisoned outputs, so that it cannot
/// change the kernel's. After `call`, `buffers` holds its results.
pub(crate) struct ReferenceRun<'a> {
    host: &'a HostCase<'a>,
    /// One per argument. Absent for scalars.
    pub(crate) buffers: Vec<Option<HostBuffer>>,
    case: AbiCase,
    /// One per argument; `case` points to them.
    _scalars: Vec<u64>,
}

impl<'a> ReferenceRun<'a> {
    pub(crate) fn new(host: &'a HostCase<'a>) -> Result<ReferenceRun<'a>> {
        let mut scalars: Vec<u64> = host.args.iter().map(|arg| *arg.scalar).collect();
        let mut buffers = Vec::new();
        let mut addresses: Vec<*mut c_void> = Vec::new();
        for (arg, scalar) in host.args.iter().zip(&mut scalars) {
            if arg.spec.role == Role::Scalar {
                addresses.push(std::ptr::from_mut(scalar).cast());
                buffers.push(None);
            } else {
                let mut buffer = arg.before_launch(Poison::First)?;
                addresses.push(buffer.bytes_mut().as_mut_ptr().cast());
                buffers.push(Some(buffer));
            }
        }
        let case = AbiCase::new(host.case, &addresses);
        Ok(ReferenceRun { host, buffers, case, _scalars: scalars })
    }

    /// Restores the initial contents of `inout` tensors; the others need nothing between calls.
    pub(crate) fn restore(&mut self) {
        for (arg, buffer) in self.host.args.iter().zip(&mut self.buffers) {
            if let (Role::InOut, Some(initial), Some(buffer)) =
                (arg.spec.role, &arg.initial, buffer.as_mut())
            {
                buffer.bytes_mut().copy_from_slice(initial.bytes());
            }
        }
    }

    /// Calls the reference. Returns its time in nanoseconds.
    pub(crate) fn call(&mut self, reference: &HostReference) -> Result<f64> {
        match reference {
            HostReference::Library(library) => {
                let start = Instant::now();
                library.run(&self.case)?;
                Ok(start.elapsed().as_nanos() as f64)
            }
            HostReference::Python(python) => {
                python.run(self.host.case, &self.host.args, &mut self.buffers)
            }
        }
    }

    /// Refuses a reference that left output elements unwritten: a kernel that leaves the same
    /// elements unwritten would pass.
    pub(crate) fn check_complete(&self) -> Result<()> {
        for (arg, buffer) in self.host.args.iter().zip(&self.buffers) {
            let (Role::Out, Some(buffer)) = (arg.spec.role, buffer) else { continue };
            let count = arg.spec.count().unwrap_or(0);
            let left = count_unwritten_by_reference(arg.spec.dtype, count, buffer.bytes());
            if left > 0 {
                let name = &arg.spec.name;
                return Err(Fault::new(
                    ErrorClass::Reference,
                    format!("the reference left {left} of {count} elements of `{name}` unwritten"),
                ));
            }
        }
        Ok(())
    }
}
