//! `rgpu model kernel`: the bound and the predicted time of one kernel.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rgpu_predict::Dtype;
use rgpu_predict::document::{CalibrationState, KernelDocument, Shares, kernel_document};
use rgpu_predict::kernel::gemm::grouped;
use rgpu_predict::kernel::{
    Attention, AttentionKind, Experts, Gemm, KernelTime, OpKind, QuantizedGemm, StreamingKernel,
};

use super::gpu::{GpuArgs, PredictedGpu, target};
use super::page::{self, PageArgs};
use super::{input, own_kernel};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::{TextTable, amount, bytes, duration, percent};

/// Predict one kernel: its bound, its time and every term
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct KernelArgs {
    /// The kind of kernel (gemm, attention, moe, norm, elementwise), or the path of a kernel as
    /// `rgpu profile --kernel` takes it, with a slash or an ending
    #[arg(value_name = "OP|PATH", value_parser = kernel_or_path)]
    pub what: KernelOrPath,

    /// Sizes of the kernel at PATH, as `rgpu profile` takes them
    #[arg(long, value_name = "SIZES", allow_hyphen_values = true)]
    pub problem_sizes: Vec<String>,

    #[command(flatten)]
    pub gpu: GpuArgs,

    /// The format of the operands
    #[arg(long, default_value = "bf16")]
    pub dtype: Dtype,

    /// The format of weights, or of the KV cache, if it differs
    #[arg(long, value_name = "DTYPE")]
    pub weights: Option<Dtype>,

    /// M, N and K of the GEMM
    #[arg(long, value_name = "M,N,K", value_parser = sizes)]
    pub mnk: Option<Sizes>,

    /// A file with one m,n,k per line, run as one grouped GEMM
    #[arg(long, value_name = "FILE", conflicts_with = "mnk")]
    pub grouped: Option<PathBuf>,

    /// Add the kernel that quantizes bf16 activations to --dtype
    #[arg(long, conflicts_with = "grouped")]
    pub quantize: bool,

    /// Number of sequences
    #[arg(long, default_value = "1", value_parser = input::count)]
    pub batch: f64,

    /// Queries per sequence; 1 is decode
    #[arg(long, value_parser = input::count)]
    pub queries: Option<f64>,

    /// Keys per sequence, including those of the queries
    #[arg(long, value_parser = input::count)]
    pub keys: Option<f64>,

    /// Number of query heads
    #[arg(long, value_parser = input::count)]
    pub heads: Option<f64>,

    /// KV heads; as many as query heads if not given
    #[arg(long, value_parser = input::count)]
    pub kv_heads: Option<f64>,

    /// The length of a head
    #[arg(long, default_value = "128", value_parser = input::count)]
    pub head_dim: f64,

    /// MLA: the length of the latent and of the rotated part, for example 512,64
    #[arg(long, value_name = "RANK,ROPE", value_parser = pair)]
    pub mla: Option<(f64, f64)>,

    /// A query sees at most this many keys
    #[arg(long, value_parser = input::count)]
    pub window: Option<f64>,

    /// Every query sees every key
    #[arg(long)]
    pub no_mask: bool,

    /// Write scores to memory, as attention without a fused kernel does
    #[arg(long)]
    pub naive: bool,

    /// Number of experts, and experts per token, e.g. 128,8
    #[arg(long, value_name = "ALL,CHOSEN", value_parser = pair)]
    pub experts: Option<(f64, f64)>,

    /// Tokens of a mixture of experts
    #[arg(long, value_parser = input::count)]
    pub tokens: Option<f64>,

    /// The model's width, and the width inside an expert, for example 2048,768
    #[arg(long, value_name = "HIDDEN,INNER", value_parser = pair)]
    pub widths: Option<(f64, f64)>,

    /// Elements of a norm's or an elementwise kernel's tensor
    #[arg(long, value_parser = input::count)]
    pub elements: Option<f64>,

    /// How often that tensor crosses HBM, reads and writes together
    #[arg(long, default_value = "2", value_parser = input::count)]
    pub passes: f64,

    /// A measured time in µs: shows the share of the bound that it reaches
    #[arg(long, value_name = "US")]
    pub measured_us: Option<f64>,

    /// The clock during that measurement: shows the share at this clock too
    #[arg(long, value_name = "MHZ", requires = "measured_us")]
    pub clock_mhz: Option<f64>,

    #[command(flatten)]
    pub page: PageArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum KernelName {
    /// A matrix product (--mnk), or a group of them (--grouped)
    Gemm,
    /// Attention (--queries, --keys, --heads)
    Attention,
    /// Both products of a mixture of experts (--experts, --tokens, --widths)
    Moe,
    /// A norm (--elements)
    Norm,
    /// Any kernel that reads and writes its operands once (--elements)
    Elementwise,
}

/// What is predicted.
#[derive(Clone, Debug)]
pub(in crate::cli) enum KernelOrPath {
    Op(KernelName),
    Path(String),
}

/// A kind of kernel, or a path. A kind of kernel wins.
fn kernel_or_path(typed: &str) -> std::result::Result<KernelOrPath, String> {
    match KernelName::from_str(typed, true) {
        Ok(op) => Ok(KernelOrPath::Op(op)),
        Err(_) if own_kernel::is_path(typed) => Ok(KernelOrPath::Path(typed.to_owned())),
        Err(_) => {
            let known: Vec<String> =
                KernelName::value_variants().iter().map(|op| op.word()).collect();
            Err(format!(
                "it is none of {}; the path of a kernel has a slash or an ending: `./{typed}`",
                known.join(", ")
            ))
        }
    }
}

impl KernelName {
    fn word(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }
}

/// M, N and K of a GEMM.
type Sizes = [f64; 3];

fn sizes(typed: &str) -> std::result::Result<Sizes, String> {
    let numbers: Vec<f64> =
        typed.split(',').map(|n| input::count(n.trim())).collect::<std::result::Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("`{typed}` is not M,N,K"))
}

/// Two numbers with a comma.
fn pair(typed: &str) -> std::result::Result<(f64, f64), String> {
    match typed.split_once(',') {
        Some((first, second)) => Ok((input::count(first.trim())?, input::count(second.trim())?)),
        None => Err(format!("`{typed}` is not two numbers with a comma")),
    }
}

/// The value of a flag that the kernel needs.
fn required<T>(value: Option<T>, flag: &str, op: KernelName) -> Result<T> {
    value.ok_or_else(|| Failure::new(Exit::Usage, "usage", format!("`{}` needs {flag}", op.word())))
}

pub(super) fn run(app: &App, args: &KernelArgs) -> Result<Status> {
    let target = target(app, &args.gpu)?;
    let predict = |target: &PredictedGpu| predict(app, args, target);
    let mut documents = predict(&target)?;
    if let Some([fast, slow]) = target.likely_ends() {
        let ends = predict(&fast)?.into_iter().zip(predict(&slow)?);
        for (document, (fast, slow)) in documents.iter_mut().zip(ends) {
            let is_calibrated = document.calibration == CalibrationState::Calibrated;
            document.likely_ns =
                is_calibrated.then_some([fast.time_ns.max(document.bound_ns), slow.time_ns]);
        }
    }
    if let Some(us) = args.measured_us {
        let [document] = &mut documents[..] else {
            let what = format!("--measured-us is one time, but there are {}", documents.len());
            return Err(Failure::new(Exit::Usage, "usage", what + " predictions")
                .hint("predict each product or case alone"));
        };
        document.shares = Some(shares(args, &target, us, &predict)?);
    }
    let sides: Vec<_> =
        documents.iter().map(|d| page::side(&d.subject, d)).collect::<Result<_>>()?;
    let title = match &args.what {
        KernelOrPath::Op(op) => op.word(),
        KernelOrPath::Path(path) => path.clone(),
    };
    let is_page = page::write(app, &args.page, &title, &target.hardware.id, &sides)?;
    for document in &documents {
        match (app.global.json, is_page) {
            (true, _) => app.print_json(document)?,
            (false, true) => {}
            (false, false) => print(app, document),
        }
    }
    Ok(0)
}

fn predict(app: &App, args: &KernelArgs, target: &PredictedGpu) -> Result<Vec<KernelDocument>> {
    match &args.what {
        KernelOrPath::Op(op) => predict_op(*op, args, target),
        KernelOrPath::Path(path) => predict_own(app, path, args, target),
    }
}

/// The cases of the kernel at `path`.
fn predict_own(
    app: &App,
    path: &str,
    args: &KernelArgs,
    target: &PredictedGpu,
) -> Result<Vec<KernelDocument>> {
    let context = target.context();
    let cases = own_kernel::cases(app, path, &args.problem_sizes)?;
    let document = |case: own_kernel::CaseWork| {
        let time = case.work.time(&case.sizes, case.math, &context);
        let mut document = kernel_document(case.subject, &time, &target.hardware, &context);
        document.notes.extend(case.assumption.map(str::to_owned));
        document.notes.extend(target.source_note(&time));
        document
    };
    Ok(cases.into_iter().map(document).collect())
}

fn predict_op(
    op: KernelName,
    args: &KernelArgs,
    target: &PredictedGpu,
) -> Result<Vec<KernelDocument>> {
    let context = target.context();
    let document = |subject: String, time: &KernelTime| {
        let mut document = kernel_document(subject, time, &target.hardware, &context);
        let widest = args.weights.filter(|w| w.bits() > args.dtype.bits()).unwrap_or(args.dtype);
        if target.gpu.math(widest) != widest.math() {
            let name = &target.hardware.id;
            let note = format!("{name} multiplies no {widest}: values are widened to 16 bits");
            document.notes.push(note);
        }
        document.notes.extend(target.source_note(time));
        document
    };
    let weights = args.weights.unwrap_or(args.dtype);
    Ok(match op {
        KernelName::Gemm => {
            let gemm = |[m, n, k]: Sizes| Gemm { b: weights, ..Gemm::new(m, n, k, args.dtype) };
            match &args.grouped {
                Some(path) => {
                    let groups: Vec<Gemm> = group_sizes(path)?.into_iter().map(gemm).collect();
                    let subject =
                        format!("{} products in one launch, {}", groups.len(), args.dtype);
                    vec![document(subject, &grouped(&groups, &context))]
                }
                None if args.quantize => {
                    let [m, n, k] = required(args.mnk, "--mnk M,N,K", op)?;
                    if args.dtype.bits() >= 16 {
                        let what = format!("{} is not narrower than bf16", args.dtype);
                        return Err(Failure::new(Exit::Usage, "usage", what)
                            .hint("name the narrow format: `--quantize --dtype fp8`"));
                    }
                    let mut layer = QuantizedGemm::new(m, n, k, args.dtype);
                    layer.gemm.b = weights;
                    let subject = format!("gemm {m}x{n}x{k} {} of activations in bf16", args.dtype);
                    vec![document(subject, &layer.time(&context))]
                }
                None => {
                    let [m, n, k] = required(args.mnk, "--mnk M,N,K or --grouped FILE", op)?;
                    let subject = format!("gemm {m}x{n}x{k} {}", args.dtype);
                    vec![document(subject, &gemm([m, n, k]).time(&context))]
                }
            }
        }
        KernelName::Attention => {
            let heads = required(args.heads, "--heads", op)?;
            let keys = required(args.keys, "--keys", op)?;
            let queries = args.queries.unwrap_or(1.0);
            if queries > keys {
                let what = format!("{queries} queries are more than {keys} keys");
                return Err(Failure::new(Exit::Usage, "usage", what)
                    .hint("--keys counts the keys of the queries too"));
            }
            let kv_heads = args.kv_heads.unwrap_or(heads);
            if heads % kv_heads != 0.0 {
                let what = format!("{kv_heads} KV heads do not divide {heads} heads");
                return Err(Failure::new(Exit::Usage, "usage", what));
            }
            let mut attention = Attention {
                batch: args.batch,
                queries,
                keys,
                causal: !args.no_mask,
                window: args.window,
                kv_dtype: weights,
                kind: if args.naive { AttentionKind::Naive } else { AttentionKind::Flash },
                ..Attention::new(heads, kv_heads, args.head_dim, args.dtype)
            };
            if let Some((rank, rope)) = args.mla {
                attention.kv_heads = 1.0;
                (attention.key_dim, attention.value_dim) = (rank + rope, rank);
                attention.cached = rank + rope;
            }
            let subject = format!(
                "attention of {} x {queries} queries, {keys} keys, {heads} heads, {}",
                args.batch, args.dtype
            );
            vec![document(subject, &attention.time(&context))]
        }
        KernelName::Moe => {
            let (experts, chosen) = required(args.experts, "--experts ALL,CHOSEN", op)?;
            let (hidden, inner) = required(args.widths, "--widths HIDDEN,INNER", op)?;
            let tokens = required(args.tokens, "--tokens", op)?;
            if chosen > experts {
                let what = format!("{chosen} of {experts} experts cannot be chosen");
                return Err(Failure::new(Exit::Usage, "usage", what));
            }
            let layer = Experts {
                experts,
                chosen,
                hidden,
                inner,
                expert_ranks: 1.0,
                a: args.dtype,
                b: weights,
            };
            let touched = layer.touched(tokens);
            let [up, down] = layer.products(tokens, &context);
            let subject = |what: &str| {
                format!("{what} of {tokens} tokens over {touched:.1} of {experts} experts")
            };
            vec![document(subject("gate and up"), &up), document(subject("down"), &down)]
        }
        KernelName::Norm | KernelName::Elementwise => {
            let elements = required(args.elements, "--elements", op)?;
            let kernel = StreamingKernel {
                op: if op == KernelName::Norm { OpKind::Norm } else { OpKind::Elementwise },
                elements,
                passes: args.passes,
                flops: 0.0,
                dtype: args.dtype,
                launches: 1.0,
            };
            let subject = format!("{elements} elements, {} passes, {}", args.passes, args.dtype);
            vec![document(subject, &kernel.time(&context))]
        }
    })
}

/// The products of a file: one `m,n,k` a line. Empty lines and those with `#` are left out.
fn group_sizes(path: &Path) -> Result<Vec<Sizes>> {
    let text = input::text(path)?;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let groups = lines.map(|(at, line)| {
        sizes(line).map_err(|error| {
            Failure::new(Exit::Config, "bad_sizes", error)
                .file(format!("{}:{at}", path.display()))
                .hint("write one `m,n,k` a line")
        })
    });
    let groups: Vec<Sizes> = groups.collect::<Result<_>>()?;
    if groups.is_empty() {
        Err(Failure::new(Exit::Config, "bad_sizes", "the file has no line m,n,k")
            .file(path.display()))
    } else {
        Ok(groups)
    }
}

fn shares(
    args: &KernelArgs,
    target: &PredictedGpu,
    us: f64,
    predict: &dyn Fn(&PredictedGpu) -> Result<Vec<KernelDocument>>,
) -> Result<Shares> {
    let positive = |value: f64, flag: &str| {
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(Failure::new(Exit::Usage, "usage", format!("{flag} must be above 0")))
        }
    };
    let measured_ns = positive(us, "--measured-us")? * 1e3;
    let bound = |target: &PredictedGpu| {
        predict(target).map(|documents| documents[0].bound_ns / measured_ns)
    };
    let of_bound_at_clock = match args.clock_mhz {
        Some(mhz) => {
            let hz = positive(mhz, "--clock-mhz")? * 1e6;
            if target.gpu.clock_hz.is_none() {
                let what = format!("the specified clock of `{}` is not known", target.hardware.id);
                return Err(Failure::new(Exit::Config, "no_clock", what)
                    .hint("leave --clock-mhz out, or add [clock] to a hardware file"));
            }
            let slower = PredictedGpu {
                hardware: target.hardware.clone(),
                gpu: target.gpu.at_clock(hz),
                calibration: None,
                launch: target.launch,
            };
            Some(bound(&slower)?)
        }
        None => None,
    };
    let of_bound = bound(target)?;
    Ok(Shares { measured_ns, of_bound, clock_mhz: args.clock_mhz, of_bound_at_clock })
}

fn print(app: &App, document: &KernelDocument) {
    app.print(&format!("{} on {}\n", document.subject, document.gpu));
    let mut table = TextTable::new(" | : | ");
    let mut row = |name: &str, value: String, words: String| {
        table.add_row([name.to_owned(), value, words]);
    };
    let limited = format!("{:?}", document.limited_by).to_lowercase();
    row("bound", duration(document.bound_ns), "speed of light".into());
    row(
        "time",
        duration(document.time_ns),
        format!("{}, limited by {limited}", document.calibration.word()),
    );
    if let Some([fast, slow]) = document.likely_ns {
        let words = "covers 80 % of the times held out of the fit";
        row("likely", format!("{} to {}", duration(fast), duration(slow)), words.into());
    }
    if let Some(repeated) = document.repeated {
        let clock = repeated.clock_mhz.map(|mhz| format!(", {mhz:.0} MHz")).unwrap_or_default();
        let words = format!("one of many in a row, under the power limit{clock}");
        row("repeated", duration(repeated.time_ns), words);
    }
    let intensity = format!("{:.1} FLOP a byte", document.intensity);
    row("work", amount(document.flops, "FLOP"), intensity);
    row("traffic", bytes(document.bytes), String::new());
    if let Some(tile) = document.tile {
        let split =
            if tile.split > 1.0 { format!(", k in {} parts", tile.split) } else { String::new() };
        row(
            "tile",
            format!("{}x{}", tile.rows, tile.columns),
            format!("fastest of a library's tiles{split}"),
        );
    }
    if let Some(shares) = document.shares {
        row(
            "measured",
            duration(shares.measured_ns),
            format!("{} of the bound at the specified clock", percent(100.0 * shares.of_bound)),
        );
        if let (Some(mhz), Some(share)) = (shares.clock_mhz, shares.of_bound_at_clock) {
            let words = format!("{} of the bound at {mhz} MHz", percent(100.0 * share));
            row("", String::new(), words);
        }
        if shares.of_bound > 1.0 {
            row(
                "",
                String::new(),
                "faster than the speed-of-light bound: check the measurement".into(),
            );
        }
    }
    app.print(&table.plain(app.style().width, 2));
    for note in &document.notes {
        app.print(&format!("  note: {note}\n"));
    }
    let mut table = TextTable::new("term | time: | formula");
    for term in &document.terms {
        let mark = if term.counts { "" } else { "  (not in the sum)" };
        table.add_row([term.name.to_owned(), duration(term.ns), format!("{}{mark}", term.formula)]);
    }
    app.print("\n");
    app.print(&table.plain(app.style().width, 2));
}
