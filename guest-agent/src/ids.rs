//! Numbers of the kernel as types of their own, so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Always positive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(i32);

        impl $name {
            /// The number, or `None` if it is not positive.
            #[must_use]
            pub const fn new(number: i32) -> Option<Self> {
                if number > 0 { Some(Self(number)) } else { None }
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> i32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A number that names a thread; a process is named by its first thread.
    Pid
}
number! {
    /// A thread group id: the number of a process.
    Tgid
}
number! {
    /// A process group id: the number of the process that founded it.
    Pgid
}
number! {
    /// A session id: the number of the process that founded it.
    Sid
}

impl Tgid {
    /// The process's first thread.
    #[must_use]
    pub const fn pid(self) -> Pid {
        Pid(self.0)
    }

    /// The session this process founds by `setsid(2)`.
    #[must_use]
    pub const fn founded_session(self) -> Sid {
        Sid(self.0)
    }
}

impl Pgid {
    /// The process that founded the group, if it still lives.
    #[must_use]
    pub const fn founder(self) -> Pid {
        Pid(self.0)
    }
}

impl Sid {
    /// The process that founded the session, if it still lives.
    #[must_use]
    pub const fn leader(self) -> Tgid {
        Tgid(self.0)
    }
}

/// Names an exec for as long as the agent runs: `e1`, `e2`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecId(u64);

impl ExecId {
    /// The `number`th exec of this agent.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Reads the form that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('e')?;
        let number = digits.parse().ok()?;
        (Self(number).to_string() == text).then_some(Self(number))
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_numbers_name_something() {
        assert_eq!(Pid::new(0), None);
        assert_eq!(Pid::new(-1), None);
        assert_eq!(Pid::new(i32::MIN), None);
        assert_eq!(Pid::new(7).map(Pid::get), Some(7));
    }

    #[test]
    fn an_exec_id_has_one_spelling() {
        assert_eq!(ExecId::parse("e12"), Some(ExecId::new(12)));
        for text in ["", "e", "12", "e012", "e+12", "e-1", "E12", "e12 "] {
            assert_eq!(ExecId::parse(text), None, "{text}");
        }
    }
}
