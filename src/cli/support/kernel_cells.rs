//! The facts of a compiled kernel as cells of a table.

use rgpu_model::disasm::Kernel;

/// The cells of a kernel's line.
pub(in crate::cli) fn kernel_cells(arch: &str, kernel: &Kernel) -> [String; 10] {
    let number = |n: Option<u32>| n.map_or("?".to_owned(), |n| n.to_string());
    let tensor: u64 = kernel
        .classes
        .iter()
        .filter(|(class, _)| class.starts_with("tensor_") && *class != "tensor_memory")
        .map(|(_, n)| n)
        .sum();
    let name = kernel.name.as_deref().unwrap_or(&kernel.symbol);
    [
        arch.to_owned(),
        number(kernel.registers),
        number(kernel.stack_bytes),
        match kernel.spill_store_bytes.zip(kernel.spill_load_bytes) {
            Some((store, load)) => format!("{store}/{load}"),
            None => "?".to_owned(),
        },
        match kernel.shared_reserved_bytes {
            Some(reserved) => format!("{}+{reserved}", kernel.shared_bytes),
            None => kernel.shared_bytes.to_string(),
        },
        kernel.barriers.to_string(),
        kernel.occupancy.as_ref().map_or(String::new(), |o| format!("{:.0} %", o.percent)),
        kernel.instructions.map_or("?".to_owned(), |n| n.to_string()),
        if tensor > 0 { tensor.to_string() } else { String::new() },
        rgpu_format::demangle::short(name).to_owned(),
    ]
}
