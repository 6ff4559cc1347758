//! Composition `A∘B`: the layout `R` that refines `B` with `R(i) = A(B(i))` for all `i`.
//!
//! With `A` coalesced as `(a_0,…):(t_0,…)` and `P_k = a_0·…·a_(k-1)`,
//!
//! ```text
//! A(x) = t_0·x + Σ_(k>0) δ_k·⌊x / P_k⌋      with δ_k = t_k − a_(k-1)·t_(k-1) ≠ 0
//! ```
//!
//! so `A` is additive where no residue carries over a `P_k`. A result exists if each mode of `B`
//! maps to a layout and the modes do not interact. A mode's layout is unique once coalesced: its
//! first extent is the length of the first linear run, and so on. So there is one candidate. It is
//! proved by residues that cannot carry, or by looking at every point. It is refuted by one point.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

use crate::coalesce::add_coalesced;
use crate::layout::{
    Layout, LayoutError, LeafCoordinate, Mode, Modes, Tree, div_rem, offset, size_of,
};
use crate::proof::{
    BrokenRun, Condition, Limits, Method, Proof, ProvenLayout, Reason, Rejection, Witness,
};

/// A part of a mode of `B` on which `A` is linear: `extent` steps of `inner` in `B`'s offsets
/// become as many of `outer`.
#[derive(Debug, Clone, Copy)]
struct Piece {
    extent: i64,
    inner: i64,
    outer: i64,
    /// The leaf of `B` that it is part of.
    leaf: usize,
}

/// Composes `a∘b`.
///
/// # Errors
/// A [`Rejection`] if no layout that refines `b` represents it, with a witness and the nearest
/// tiler that is admissible, or if it needs more points than the limit.
pub fn compose(a: &Layout, b: &Layout, limits: Limits) -> Result<ProvenLayout, Box<Rejection>> {
    // Filled in place: functions that return them would copy them.
    let (mut outer, mut inner) = (Modes::new(), Modes::new());
    a.each_mode(&mut |mode| add_coalesced(&mut outer, mode));
    b.each_mode(&mut |mode| inner.push(mode));
    let mut pieces = Pieces::new();
    match compose_modes(&outer, a.size(), &inner, limits, &mut pieces) {
        Ok(proof) => Ok(ProvenLayout { layout: composed(b, inner.len(), &pieces)?, proof }),
        Err(mut rejection) => {
            if rejection.condition != Condition::Undecided {
                rejection.nearest = nearest(&outer, a.size(), b, limits.nearest_tries);
            }
            if rejection.condition == Condition::ImageOutside && limits.nearest_tries > 0 {
                rejection.enlarged = enlarged(a, b).map(Box::new);
            }
            Err(rejection)
        }
    }
}

/// `a` with its last mode as long as `b` reaches, if that has a result: what CuTe computes, whose
/// last mode continues beyond its extent.
fn enlarged(a: &Layout, b: &Layout) -> Option<Layout> {
    let mut modes = a.modes();
    let last = modes.iter().rposition(|mode| mode.extent > 1)?;
    let before = size_of(&modes[..last]);
    modes[last].extent = b.high() / before + 1;
    let mut modes = modes.into_iter();
    let tree = a.tree().map(&mut |old| Tree::Leaf(modes.next().unwrap_or(old)));
    let larger = Layout::new(tree).ok()?;
    let bare = Limits { nearest_tries: 0, points: 1 << 12 };
    compose(&larger, b, bare).is_ok().then_some(larger)
}

type Pieces = SmallVec<[Piece; 8]>;

/// The proved result. Its offsets are some of A's, so they fit; only splitting modes makes it
/// deeper than `b`.
fn composed(b: &Layout, leaves: usize, pieces: &[Piece]) -> Result<Layout, LayoutError> {
    if pieces.len() > leaves {
        return Layout::new(refined(b, pieces));
    }
    let tree = match (b.tree(), pieces) {
        (Tree::Leaf(_), [piece]) => Tree::Leaf(Mode::new(piece.extent, piece.outer)),
        _ => refined(b, pieces),
    };
    let reach = pieces.iter().map(|piece| (piece.extent - 1) * piece.outer);
    let (low, high) =
        reach.fold(
            (0, 0),
            |(low, high), reach| if reach < 0 { (low + reach, high) } else { (low, high + reach) },
        );
    Ok(Layout::known(tree, b.size(), low, high))
}

/// `b` with each leaf replaced by its pieces.
fn refined(b: &Layout, pieces: &[Piece]) -> Tree {
    let mut leaf = 0;
    let mut rest = pieces;
    b.tree().map(&mut |_| {
        let count = rest.iter().take_while(|piece| piece.leaf == leaf).count();
        let (own, others) = rest.split_at(count);
        leaf += 1;
        rest = others;
        let part = |piece: &Piece| Tree::Leaf(Mode::new(piece.extent, piece.outer));
        match own {
            [] => Tree::Leaf(Mode::new(1, 0)),
            [piece] => part(piece),
            pieces => Tree::Node(pieces.iter().map(part).collect()),
        }
    })
}

fn compose_modes(
    a: &[Mode],
    size: i64,
    b: &[Mode],
    limits: Limits,
    pieces: &mut Pieces,
) -> Result<Proof, Box<Rejection>> {
    image_inside(size, b)?;
    for (leaf, mode) in b.iter().enumerate() {
        split(a, *mode, leaf, pieces, limits)?;
    }
    verify(a, b, pieces, limits)
}

/// All offsets of `b` must be coordinates of an outer layout of this size.
fn image_inside(size: i64, b: &[Mode]) -> Result<(), Box<Rejection>> {
    let mut high = 0_i64;
    for (index, mode) in b.iter().enumerate().filter(|(_, mode)| mode.extent > 1) {
        if mode.stride < 0 {
            let step = |at, _: &Mode| i64::from(at == index);
            return Err(outside(b, index, step, mode.stride, Reason::BelowZero));
        }
        high += (mode.extent - 1) * mode.stride;
        if high >= size {
            let corner = |at, mode: &Mode| if at <= index { mode.extent - 1 } else { 0 };
            let reason = Reason::BeyondEnd { reach: high, size };
            return Err(outside(b, index, corner, high, reason));
        }
    }
    Ok(())
}

fn outside(
    b: &[Mode],
    index: usize,
    place: impl Fn(usize, &Mode) -> i64,
    offset: i64,
    reason: Reason,
) -> Box<Rejection> {
    let coordinate = b.iter().enumerate().map(|(at, mode)| place(at, mode)).collect();
    let mut rejection = Rejection::new(Condition::ImageOutside, reason).mode(index, b[index]);
    rejection.witness = Some(Witness { coordinate, required: Some(offset), candidate: None });
    rejection.proof = Some(Proof::new(Method::Algebraic, 0, "the witness is outside"));
    rejection
}

/// The first run on which A is linear.
struct LinearRun {
    /// Its steps, at most those of the mode.
    steps: i64,
    /// The mode of A whose end stops it, with the product of the extents up to that mode.
    stop: (usize, i64),
}

/// The first run on which `A(i·step) = i·slope`, at most `extent`. `slope` is `A(step)`. `None`
/// beyond the limit of points.
fn linear_run(a: &[Mode], step: i64, slope: i64, extent: i64, limits: Limits) -> Option<LinearRun> {
    let last = a.len().saturating_sub(1);
    let reach = step * (extent - 1);
    // The next index at which the floor over each prefix jumps.
    let mut from = 0;
    for _ in 0..limits.points.max(1) {
        let (mut next, mut stop, mut prefix) = (extent, (0, 1), 1_i64);
        for (k, mode) in a[..last].iter().enumerate() {
            prefix *= mode.extent;
            // Within the offsets of B. From here on, no floor jumps.
            if reach < prefix {
                break;
            }
            let residue = remainder(step, prefix);
            if residue * (next - 1) < prefix {
                continue;
            }
            // Without a jump before, ⌊i·residue / prefix⌋ is 0 up to here.
            let jump = match from {
                0 => ceil_div(prefix, residue),
                from => next_jump(residue, prefix, from, extent),
            };
            if jump < next {
                (next, stop) = (jump, (k, prefix));
            }
        }
        if next >= extent {
            return Some(LinearRun { steps: extent, stop });
        }
        if i128::from(offset(a, next * step)) != i128::from(next) * i128::from(slope) {
            return Some(LinearRun { steps: next, stop });
        }
        from = next;
    }
    None
}

/// The remainder, without a division where the dividend is smaller, as most steps are.
fn remainder(dividend: i64, divisor: i64) -> i64 {
    if dividend < divisor { dividend } else { div_rem(dividend, divisor).1 }
}

fn ceil_div(dividend: i64, divisor: i64) -> i64 {
    let (quotient, remainder) = div_rem(dividend, divisor);
    quotient + i64::from(remainder > 0)
}

/// The first `i > from` at which `⌊i·residue / prefix⌋` is larger than at `from`; `extent` if none.
fn next_jump(residue: i64, prefix: i64, from: i64, extent: i64) -> i64 {
    let (residue, prefix) = (i128::from(residue), i128::from(prefix));
    let floor = i128::from(from) * residue / prefix;
    let next = ((floor + 1) * prefix + residue - 1) / residue;
    i64::try_from(next).map_or(extent, |next| next.min(extent))
}

/// Splits a mode of `B` into runs on which `A` is linear. The extents of these runs are forced.
fn split(
    a: &[Mode],
    mode: Mode,
    leaf: usize,
    pieces: &mut Pieces,
    limits: Limits,
) -> Result<(), Box<Rejection>> {
    let (mut extent, mut step) = (mode.extent, mode.stride);
    if extent == 1 {
        return Ok(());
    }
    if step == 0 {
        pieces.push(Piece { extent, inner: 0, outer: 0, leaf });
        return Ok(());
    }
    while extent > 1 {
        let slope = offset(a, step);
        let Some(LinearRun { steps, stop }) = linear_run(a, step, slope, extent, limits) else {
            let reason = "where the linear run of a mode ends";
            return Err(Rejection::undecided(limits, reason));
        };
        if steps == extent {
            pieces.push(Piece { extent, inner: step, outer: slope, leaf });
            return Ok(());
        }
        let (rest, remainder) = div_rem(extent, steps);
        if remainder != 0 {
            let (stop, prefix) = stop;
            let run = BrokenRun { run: steps, extent, step, stop, prefix };
            return Err(run_does_not_divide(a, mode, leaf, run, slope));
        }
        pieces.push(Piece { extent: steps, inner: step, outer: slope, leaf });
        extent = rest;
        // Inside the image while something is left.
        step = if extent > 1 { step * steps } else { step };
    }
    Ok(())
}

fn run_does_not_divide(
    a: &[Mode],
    mode: Mode,
    leaf: usize,
    broken: BrokenRun,
    slope: i64,
) -> Box<Rejection> {
    let BrokenRun { run, step, prefix, .. } = broken;
    let divides = remainder(prefix, step) == 0 || remainder(step, prefix) == 0;
    let condition =
        if divides { Condition::ShapeDivisibility } else { Condition::StrideDivisibility };
    let mut coordinate: LeafCoordinate = smallvec![0; leaf + 1];
    coordinate[leaf] = run * div_rem(step, mode.stride).0;
    let required = offset(a, run * step);
    let candidate = i64::try_from(i128::from(run) * i128::from(slope)).ok();
    let mut rejection = Rejection::new(condition, Reason::Run(broken)).mode(leaf, mode);
    rejection.witness = Some(Witness { coordinate, required: Some(required), candidate });
    let claim =
        "any refinement begins with the linear run, whose length does not divide the extent";
    rejection.proof = Some(Proof::new(Method::Algebraic, 0, claim));
    rejection
}

/// Proves that the pieces are the composition, or finds the point that shows that none is.
fn verify(
    a: &[Mode],
    b: &[Mode],
    pieces: &[Piece],
    limits: Limits,
) -> Result<Proof, Box<Rejection>> {
    // Independent of how the pieces were found: each must be what A is along it.
    let sound = pieces.iter().all(|piece| piece.outer == offset(a, piece.inner));
    let mut carry = None;
    let mut prefix = 1_i64;
    let high: i64 = pieces.iter().map(|piece| (piece.extent - 1) * piece.inner).sum();
    for (k, mode) in a.iter().enumerate().take(a.len().saturating_sub(1)) {
        prefix *= mode.extent;
        if high < prefix {
            break;
        }
        // At most the largest offset of B.
        let residues = pieces.iter().map(|p| (p.extent - 1) * remainder(p.inner, prefix));
        let reach: i64 = residues.sum();
        if reach >= prefix {
            carry = Some((k, prefix));
            break;
        }
    }
    let claim = "R refines B, and R(i) = A(B(i)) for all i";
    let Some((k, prefix)) = carry.filter(|_| sound).or((!sound).then_some((0, 1))) else {
        return Ok(Proof::new(Method::Algebraic, 0, claim));
    };
    let size = size_of(b) as u64;
    let witness = carry_witness(a, pieces, prefix)
        .or_else(|| (size <= limits.points).then(|| first_mismatch(a, pieces)).flatten());
    let Some(digits) = witness else {
        return if size <= limits.points {
            Ok(Proof::new(Method::Enumeration, size, claim))
        } else {
            let reason = "that no coordinates carry into each other";
            Err(Rejection::undecided(limits, reason))
        };
    };
    Err(carry_rejection(a, b, pieces, &digits, (k, prefix)))
}

/// The value of A and of the candidate at digits of the pieces.
fn both(a: &[Mode], pieces: &[Piece], digits: &[i64]) -> (i64, i128) {
    let inner: i64 = pieces.iter().zip(digits).map(|(p, c)| p.inner * c).sum();
    let outer = pieces.iter().zip(digits).map(|(p, c)| i128::from(p.outer) * i128::from(*c)).sum();
    (offset(a, inner), outer)
}

/// Looks for a refuting point where the residues of this prefix carry: the smallest such corner,
/// then the largest.
fn carry_witness(a: &[Mode], pieces: &[Piece], prefix: i64) -> Option<LeafCoordinate> {
    let mut small: LeafCoordinate = smallvec![0; pieces.len()];
    let mut reach = 0;
    for (piece, digit) in pieces.iter().zip(&mut small) {
        let residue = piece.inner % prefix;
        if residue == 0 || reach >= prefix {
            continue;
        }
        let missing = prefix - reach;
        *digit = (piece.extent - 1).min(ceil_div(missing, residue));
        reach += *digit * residue;
    }
    let corner = pieces.iter().map(|piece| piece.extent - 1).collect();
    [small, corner].into_iter().find(|digits| {
        let (required, candidate) = both(a, pieces, digits);
        i128::from(required) != candidate
    })
}

/// The first point where A and the candidate differ, by looking at all of them.
fn first_mismatch(a: &[Mode], pieces: &[Piece]) -> Option<LeafCoordinate> {
    let mut digits: LeafCoordinate = smallvec![0; pieces.len()];
    let (mut inner, mut outer) = (0_i64, 0_i128);
    loop {
        if i128::from(offset(a, inner)) != outer {
            return Some(digits);
        }
        let mut moved = false;
        for (piece, digit) in pieces.iter().zip(&mut digits) {
            if *digit + 1 < piece.extent {
                *digit += 1;
                inner += piece.inner;
                outer += i128::from(piece.outer);
                moved = true;
                break;
            }
            inner -= *digit * piece.inner;
            outer -= i128::from(*digit) * i128::from(piece.outer);
            *digit = 0;
        }
        if !moved {
            return None;
        }
    }
}

fn carry_rejection(
    a: &[Mode],
    b: &[Mode],
    pieces: &[Piece],
    digits: &[i64],
    (k, prefix): (usize, i64),
) -> Box<Rejection> {
    let (required, candidate) = both(a, pieces, digits);
    let mut coordinate: LeafCoordinate = smallvec![0; b.len()];
    for (piece, digit) in pieces.iter().zip(digits) {
        if piece.inner > 0 {
            coordinate[piece.leaf] += digit * (piece.inner / b[piece.leaf].stride);
        }
    }
    let involved: SmallVec<[usize; 8]> =
        (0..b.len()).filter(|leaf| coordinate[*leaf] > 0).collect();
    let one = involved.len() == 1;
    let condition = if one { Condition::StrideDivisibility } else { Condition::Carry };
    let reason = Reason::Carry { last: k, prefix };
    let mut rejection = Rejection::new(condition, reason);
    for index in involved {
        rejection = rejection.mode(index, b[index]);
    }
    let candidate = i64::try_from(candidate).ok();
    rejection.witness = Some(Witness { coordinate, required: Some(required), candidate });
    let claim = "any refinement has the candidate's offset at the witness, because its offsets along \
                 each mode alone are forced";
    rejection.proof = Some(Proof::new(Method::Algebraic, 0, claim));
    rejection
}

/// How many shorter extents of a mode are tried for the nearest operand.
const MAX_SHORTER_EXTENTS: usize = 1024;

/// The operand nearest to `b` that differs in one leaf and has a composition: the smallest change
/// of extent and stride together, first of the stride alone.
fn nearest(a: &[Mode], size: i64, b: &Layout, max_tries: usize) -> Option<Layout> {
    if max_tries == 0 {
        return None;
    }
    let modes = b.modes();
    let no_points = Limits { points: 0, nearest_tries: 0 };
    let mut tries = 0;
    let mut queue: VecDeque<(usize, i64, i64)> = VecDeque::new();
    for distance in 1_i64.. {
        for leaf in (0..modes.len()).filter(|leaf| modes[*leaf].extent > 1) {
            for by_extent in 0..=distance {
                let by_stride = distance - by_extent;
                for (e, s) in [(1, 1), (1, -1), (-1, 1), (-1, -1)] {
                    let twice = (by_extent == 0 && e < 0) || (by_stride == 0 && s < 0);
                    if !twice {
                        queue.push_back((leaf, e * by_extent, s * by_stride));
                    }
                }
            }
        }
        while let Some((leaf, extent, stride)) = queue.pop_front() {
            tries += 1;
            if tries > max_tries {
                return largest_prefix(a, size, b);
            }
            let mut changed = modes.clone();
            let mode = &mut changed[leaf];
            let (Some(extent), Some(stride)) =
                (mode.extent.checked_add(extent), mode.stride.checked_add(stride))
            else {
                continue;
            };
            *mode = Mode::new(extent, stride);
            // A stride of 0 is near in numbers only: the tile would never move.
            let stands_still = stride == 0 && modes[leaf].stride != 0;
            if extent < 1 || stride < 0 || stands_still {
                continue;
            }
            let Ok(layout) = with_modes(b, &changed) else { continue };
            let mut pieces = Pieces::new();
            if compose_modes(a, size, &changed, no_points, &mut pieces).is_ok() {
                return Some(layout);
            }
        }
        if modes.iter().all(|mode| mode.extent == 1) {
            return None;
        }
    }
    None
}

fn with_modes(b: &Layout, modes: &[Mode]) -> Result<Layout, LayoutError> {
    let mut modes = modes.iter();
    Layout::new(b.tree().map(&mut |old| Tree::Leaf(modes.next().copied().unwrap_or(old))))
}

/// `b` with its extents cut until a composition exists: the last modes first, each as little as
/// possible.
fn largest_prefix(a: &[Mode], size: i64, b: &Layout) -> Option<Layout> {
    let exists = |modes: &[Mode]| {
        let no_points = Limits { points: 0, nearest_tries: 0 };
        compose_modes(a, size, modes, no_points, &mut Pieces::new()).is_ok()
    };
    let mut modes = b.modes();
    for leaf in (0..modes.len()).rev() {
        let Mode { extent, stride } = modes[leaf];
        for shorter in (1..extent).rev().take(MAX_SHORTER_EXTENTS).chain([1]) {
            modes[leaf] = Mode::new(shorter, if shorter == 1 { 0 } else { stride });
            if exists(&modes) {
                return with_modes(b, &modes).ok();
            }
        }
    }
    None
}
