//! Who may use a core of this machine: a make or ninja job server where there is one, else locks that all
//! links of this user share and that die with their holder. It does not know what a slot is used for.

use std::io;
use std::sync::mpsc;
use std::thread;

use super::pool::{Lock, Pool, own_folder};

/// The right to run one program; given back when dropped.
#[derive(Debug)]
pub struct Slot(Kind);

#[derive(Debug)]
enum Kind {
    /// The core that the linker itself leaves idle while it waits for us.
    Linker,
    Token {
        _token: jobserver::Acquired,
    },
    Lock(Lock),
    /// Sharing is not possible here.
    Free,
}

/// The job server that `MAKEFLAGS` names, if it was handed down to us. To be called first of all: a file
/// opened earlier could have taken a number that `MAKEFLAGS` names.
#[allow(unsafe_code, reason = "adopting inherited descriptors is what the protocol asks for")]
pub fn inherited_server() -> Option<jobserver::Client> {
    // SAFETY: nothing of ours is open yet, and the crate checks that the numbers are pipes.
    unsafe { jobserver::Client::from_env_ext(true) }.client.ok()
}

impl Slot {
    /// A slot of a machine on which nothing can be shared.
    pub fn unshared() -> Self {
        Slot(Kind::Free)
    }

    fn lock(lock: Lock) -> Self {
        Slot(Kind::Lock(lock))
    }
}

/// Where slots come from.
#[derive(Debug)]
pub struct Slots(Source);

#[derive(Debug)]
enum Source {
    Server { helper: jobserver::HelperThread, linker: bool },
    Locks { pool: Pool, ask: mpsc::Sender<()> },
    Free,
}

impl Slots {
    /// Tokens of a job server. `arrived` gets each slot that was asked for.
    ///
    /// # Errors
    /// The thread that waits for tokens cannot be started.
    pub fn server(
        client: jobserver::Client,
        arrived: impl Fn(io::Result<Slot>) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let helper = client.into_helper_thread(move |token| {
            arrived(token.map(|token| Slot(Kind::Token { _token: token })));
        })?;
        Ok(Slots(Source::Server { helper, linker: true }))
    }

    /// The locks of this user, `count` of them, in a folder that is made if need be. `arrived` gets each
    /// slot that was asked for.
    ///
    /// # Errors
    /// The folder cannot be used, or is not this user's own.
    pub fn locks(
        count: usize,
        arrived: impl Fn(io::Result<Slot>) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let pool = Pool::new(own_folder()?, count);
        let (ask, asked) = mpsc::channel::<()>();
        let waiter = pool.clone();
        thread::Builder::new()
            .name("slots".into())
            .spawn(move || asked.iter().for_each(|()| arrived(waiter.wait().map(Slot::lock))))?;
        Ok(Slots(Source::Locks { pool, ask }))
    }

    /// Slots without end, for a machine on which nothing can be shared.
    pub fn unshared() -> Self {
        Slots(Source::Free)
    }

    /// A slot, if one is free now.
    pub fn take(&mut self) -> Option<Slot> {
        match &mut self.0 {
            Source::Server { linker, .. } => std::mem::take(linker).then_some(Slot(Kind::Linker)),
            Source::Locks { pool, .. } => pool.take().map(Slot::lock),
            Source::Free => Some(Slot::unshared()),
        }
    }

    /// Asks for a slot that is not free now; it arrives later.
    pub fn ask(&mut self) {
        match &mut self.0 {
            Source::Server { helper, .. } => helper.request_token(),
            // The waiter lives as long as we do.
            Source::Locks { ask, .. } => drop(ask.send(())),
            Source::Free => {}
        }
    }

    /// Gives a slot back.
    pub fn give_back(&mut self, slot: Slot) {
        if let (Source::Server { linker, .. }, Kind::Linker) = (&mut self.0, &slot.0) {
            *linker = true;
        }
    }

    /// Somebody else waits for `slot`: give it back rather than use it again. A job server's tokens are
    /// wanted by programs that we cannot see.
    pub fn wanted(&self, slot: &Slot) -> bool {
        match (&self.0, &slot.0) {
            (Source::Locks { pool, .. }, Kind::Lock(lock)) => pool.wanted(lock),
            _ => false,
        }
    }
}
