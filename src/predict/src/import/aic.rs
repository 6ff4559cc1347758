//! Measured tables of aiconfigurator: `*_perf.parquet` of `aiconfigurator-core`, and `*_perf.txt`
//! (CSV) of older versions. Latencies are in ms.
//!
//! The format is that of `aiconfigurator-core` 0.12.0.

use super::{ImportError, gpu_name, parquet};
use crate::Dtype;
use crate::collective::Op;
use crate::measurement::{MAX_NUMBER, Measurement, MeasurementKind};

/// The rows of a table. Tables of other kernels give none.
///
/// # Errors
/// It is neither Parquet nor CSV, or lacks columns.
pub fn read(file: &str, bytes: &[u8]) -> Result<Vec<Measurement>, ImportError> {
    let table = if bytes.starts_with(parquet::MAGIC) {
        parquet::read(bytes).map_err(|error| ImportError::shape(file, "", error.to_string()))?
    } else {
        csv_table(file, bytes)?
    };
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    const KNOWN: [&str; 4] = ["gemm", "context_attention", "generation_attention", "nccl"];
    if !KNOWN.iter().any(|known| name.starts_with(known)) {
        return Ok(Vec::new());
    }
    let rows = table.rows();
    let mut measurements = Vec::new();
    for at in 0..rows {
        let cell = |column: &str| table.text(column, at);
        let number = |column: &str| {
            let value = table.number(column, at)?;
            (0.0..=MAX_NUMBER / 1e6).contains(&value).then_some(value)
        };
        let gpu = gpu_name(&cell("device").unwrap_or_default());
        let mut row = Measurement::new(MeasurementKind::Kernel, file, &gpu);
        row.framework = cell("framework").map(|name| name.to_lowercase());
        row.version = cell("version");
        row.gpus = Some(1);
        let dtype = |column: &str| cell(column).and_then(|name| name.parse::<Dtype>().ok());
        let latency = number("latency").ok_or_else(|| {
            ImportError::shape(
                file,
                format!("row {at}"),
                "has no `latency`: is it a measured table?",
            )
        })?;
        row.time_ns = Some(latency * 1e6);
        let is_known = if name.starts_with("gemm") {
            row.dtype = dtype("gemm_dtype");
            // Its collectors time a whole linear layer, which quantizes bf16 activations first
            // (collector/vllm, sglang and trtllm, collect_gemm.py).
            let is_narrow = row.dtype.is_some_and(|dtype| dtype.bits() < 16);
            row.op = Some(if is_narrow { "quantized_gemm" } else { "gemm" }.into());
            (row.m, row.n, row.k) = (number("m"), number("n"), number("k"));
            row.dtype.is_some() && row.m.is_some() && row.n.is_some() && row.k.is_some()
        } else if name.starts_with("context_attention") || name.starts_with("generation_attention")
        {
            let is_prefill = name.starts_with("context");
            row.op = Some(if is_prefill { "attention_prefill" } else { "attention_decode" }.into());
            row.dtype = dtype("kv_cache_dtype").or_else(|| dtype("attn_dtype"));
            row.batch = number("batch_size");
            // `step` tokens were there before this step.
            let before = number("step").unwrap_or(0.0);
            row.queries = if is_prefill { number("isl") } else { Some(1.0) };
            row.keys = number("isl").map(|isl| isl + before);
            row.heads = number("num_heads");
            row.kv_heads = number("num_key_value_heads").filter(|n| *n > 0.0).or(row.heads);
            row.head_dim = number("head_dim").or(Some(128.0));
            // With a window the pairs are fewer; such rows have a size that is not 0.
            let has_window = number("window_size").is_some_and(|size| size > 0.0);
            row.batch.is_some() && row.heads.is_some() && row.keys.is_some() && !has_window
        } else if name.starts_with("nccl") {
            row.kind = MeasurementKind::Collective;
            let op = cell("op_name").and_then(|name| name.parse::<Op>().ok());
            row.op = op.map(|op| op.name().to_owned());
            row.gpus = number("num_gpus").map(|gpus| gpus as u32);
            row.dtype = dtype("nccl_dtype");
            let size = row.dtype.map(|dtype| f64::from(dtype.bits()) / 8.0);
            row.bytes = number("message_size").zip(size).map(|(elements, size)| elements * size);
            row.op.is_some() && row.bytes.is_some()
        } else {
            false
        };
        if is_known {
            measurements.push(row);
        }
    }
    Ok(measurements)
}

fn csv_table(file: &str, bytes: &[u8]) -> Result<parquet::Table, ImportError> {
    let mut reader = csv::Reader::from_reader(bytes);
    let wrong = |error: csv::Error| ImportError::shape(file, "", error.to_string());
    let names: Vec<String> = reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
    let mut columns: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        for (column, field) in columns.iter_mut().zip(record.iter()) {
            column.push(field.to_owned());
        }
    }
    let columns = columns.into_iter().map(parquet::Column::Text);
    Ok(parquet::Table { columns: names.into_iter().zip(columns).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_text_is_read() {
        let text = b"framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n\
            VLLM,0.24.0,NVIDIA H200,gemm,x,bfloat16,1,2,3,0.5\n\
            VLLM,0.24.0,NVIDIA H200,gemm,x,fp8,1,2,3,0.5\n\
            VLLM,0.24.0,NVIDIA H200,gemm,x,w4a16,1,2,3,0.5\n";
        let rows = read("a/gemm_perf.txt", text).unwrap();
        // A row of an unknown format is left out.
        assert_eq!(rows.len(), 2);
        let ops: Vec<Option<&str>> = rows.iter().map(|row| row.op.as_deref()).collect();
        assert_eq!(ops, [Some("gemm"), Some("quantized_gemm")]);
        assert_eq!((rows[0].gpu.as_str(), rows[0].time_ns), ("h200", Some(5e5)));
        assert!(read("gemm_perf.txt", b"m,n,k\n1,2,3\n").is_err());
        // A table of something else has other columns.
        assert!(read("other_perf.txt", b"dispatch_us\n1\n").unwrap().is_empty());
    }
}
