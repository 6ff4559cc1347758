//! Builds the flags of a command only if that command was typed: building those of all commands
//! takes longer than many commands run.

use std::ops::{Deref, DerefMut};

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches, Id, Subcommand};

/// The flags, or the subcommands, of one command. The short text in the list of commands is on the
/// variant that holds this; the full text with the flags is on `A`.
#[derive(Clone, Debug)]
pub(in crate::cli) struct LazyArgs<A>(A);

impl<A> Deref for LazyArgs<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A> DerefMut for LazyArgs<A> {
    fn deref_mut(&mut self) -> &mut A {
        &mut self.0
    }
}

impl<A: FromArgMatches> FromArgMatches for LazyArgs<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: Args> Args for LazyArgs<A> {
    fn group_id() -> Option<Id> {
        A::group_id()
    }

    fn augment_args(command: Command) -> Command {
        command.defer(A::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(A::augment_args_for_update)
    }
}

impl<C: Subcommand> Subcommand for LazyArgs<C> {
    fn augment_subcommands(command: Command) -> Command {
        command.defer(C::augment_subcommands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command.defer(C::augment_subcommands_for_update)
    }

    fn has_subcommand(name: &str) -> bool {
        C::has_subcommand(name)
    }
}
