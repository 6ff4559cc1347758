//! Recasts a layout to elements of another width over the same bytes, as `recast` of CuTe does.

use crate::layout::{Layout, Mode, Tree};
use crate::proof::{Condition, Method, Proof, ProvenLayout, Rejection};

/// The layout of elements of `to_bits` over the bytes of a layout of elements of `from_bits`.
///
/// # Errors
/// If neither width divides the other, or the modes do not consist of whole elements.
pub fn recast(
    layout: &Layout,
    from_bits: i64,
    to_bits: i64,
) -> Result<ProvenLayout, Box<Rejection>> {
    if from_bits < 1 || to_bits < 1 {
        let reason = "an element has at least one bit";
        return Err(Rejection::new(Condition::ElementWidth, reason));
    }
    if to_bits % from_bits == 0 {
        upcast(layout, to_bits / from_bits)
    } else if from_bits % to_bits == 0 {
        downcast(layout, from_bits / to_bits)
    } else {
        let reason = format!("{from_bits} and {to_bits} bits do not divide each other");
        Err(Rejection::new(Condition::ElementWidth, reason))
    }
}

/// Joins `count` neighbouring elements into one.
fn upcast(layout: &Layout, count: i64) -> Result<ProvenLayout, Box<Rejection>> {
    let mut failure = None;
    // The largest offset inside a joined element, over all modes.
    let mut inside = 0_i128;
    let mut index = 0;
    let tree = layout.tree().map(&mut |mode| {
        let joined = join(mode, count);
        match joined {
            Some((mode, reach)) => {
                inside += i128::from(reach);
                index += 1;
                Tree::Leaf(mode)
            }
            None => {
                failure.get_or_insert((index, mode));
                index += 1;
                Tree::Leaf(mode)
            }
        }
    });
    if let Some((index, mode)) = failure {
        let reason = format!(
            "mode {index} ({mode}) has no whole elements: neither is its stride a multiple of {count}, \
             nor do stride and extent divide it"
        );
        return Err(Rejection::new(Condition::ElementWidth, reason).mode(index, mode));
    }
    if inside >= i128::from(count) {
        let reason = format!(
            "several modes run inside one element of {count}: they reach {inside} together, so an \
             element has parts of two"
        );
        return Err(Rejection::new(Condition::ElementWidth, reason));
    }
    let claim = format!("{count}·R(c) is the offset of the first part of element c");
    Ok(ProvenLayout { layout: Layout::new(tree)?, proof: Proof::new(Method::Algebraic, 0, claim) })
}

/// The mode of joined elements, and the largest offset within one.
fn join(mode: Mode, count: i64) -> Option<(Mode, i64)> {
    let Mode { extent, stride } = mode;
    if extent == 1 {
        return Some((Mode::new(1, 0), 0));
    }
    if stride % count == 0 {
        return Some((Mode::new(extent, stride / count), 0));
    }
    if stride < 0 || count % stride != 0 {
        return None;
    }
    let parts = count / stride;
    if extent % parts == 0 {
        let mode = if extent == parts { Mode::new(1, 0) } else { Mode::new(extent / parts, 1) };
        return Some((mode, count - stride));
    }
    // The whole mode lies inside one element, beside others.
    (parts % extent == 0).then(|| (Mode::new(1, 0), (extent - 1) * stride))
}

/// Splits each element into `count`.
fn downcast(layout: &Layout, count: i64) -> Result<ProvenLayout, Box<Rejection>> {
    let unit = |mode: &Mode| mode.extent > 1 && mode.stride == 1;
    let units = layout.modes().iter().filter(|mode| unit(mode)).count();
    if units != 1 {
        let reason = format!(
            "{units} modes have the stride 1; the {count} parts of an element extend exactly one"
        );
        return Err(Rejection::new(Condition::ElementWidth, reason));
    }
    let mut fits = true;
    let mut times = |value: i64| {
        value.checked_mul(count).unwrap_or_else(|| {
            fits = false;
            value
        })
    };
    let tree = layout.tree().map(&mut |mode| {
        Tree::Leaf(if unit(&mode) {
            Mode::new(times(mode.extent), 1)
        } else {
            Mode::new(mode.extent, times(mode.stride))
        })
    });
    if !fits {
        return Err(crate::LayoutError::Offset.into());
    }
    let claim = format!("R at part p of element c is {count}·L(c) + p, for all p below {count}");
    Ok(ProvenLayout { layout: Layout::new(tree)?, proof: Proof::new(Method::Algebraic, 0, claim) })
}
