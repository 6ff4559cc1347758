//! Every reader against real and synthetic fixtures, whole and damaged.

mod cubin;
mod damage;
mod fixture;
mod ncu_rep;
