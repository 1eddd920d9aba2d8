//! What is told of a request when its steps are over: the response to its bridge, the line in the log to
//! this host's owner. It decides nothing.

use std::io;
use std::path::Path;

use super::log::{Entry, RAN};
use super::serve::Job;
use super::spool::{Place, deliver, within};
use crate::bundle::{self, Answer, Digest, Response};
use crate::report::stats;

impl Job<'_> {
    /// Writes the response; `Err` is an answer without a run. If the outputs cannot be sent, a response
    /// says that. Returns its length.
    pub(super) fn respond(
        &mut self,
        answer: Result<Answer, Answer>,
        output: &Path,
    ) -> io::Result<u64> {
        let answer = answer.unwrap_or_else(|answer| answer);
        let sent = self.send(answer.clone(), output);
        let Err(error) = sent else {
            self.note(&answer);
            return sent;
        };
        // Without its outputs it is short.
        let answer = Answer::Failed { reason: format!("the response: {error}") };
        (self.folder, self.ended) = (None, None);
        self.note(&answer);
        self.send(answer, output)
    }

    fn send(&self, answer: Answer, output: &Path) -> io::Result<u64> {
        let host = host();
        if let Some(header) = &self.unreadable {
            return deliver(output, None, |place: &mut dyn Place| {
                bundle::cannot_read(place, header, &host)
            });
        }
        let request = self.request.as_ref();
        let mut response = Response {
            nonce: self.nonce,
            worker: env!("CARGO_PKG_VERSION").to_owned(),
            host,
            link: request.map(|request| request.link.clone()).unwrap_or_default(),
            job: request.map_or(0, |request| request.job),
            answer,
            outputs: Vec::new(),
            ms: stats::ms(self.took),
            peak_kb: self.ended.as_ref().map_or(0, |ended| ended.peak_kb),
            holds: self.holds(),
            stores: self.store.is_some(),
        };
        let (Some(folder), Some(ended), Some(request), Answer::Ran { .. }) =
            (&self.folder, &self.ended, request, &response.answer)
        else {
            return deliver(output, None, |place: &mut dyn Place| {
                bundle::answer(place, &mut response, [&[], &[]], (Path::new("/"), &[]))
            });
        };
        let work = folder.work();
        let outputs = within(&work, &request.outputs);
        deliver(output, Some(folder.path()), |place: &mut dyn Place| {
            let printed = [ended.stdout.as_slice(), ended.stderr.as_slice()];
            bundle::answer(place, &mut response, printed, (&work, &outputs))
        })
    }

    fn holds(&self) -> Vec<Digest> {
        let store = self.store.as_ref().zip(self.request.as_ref());
        store.map(|(store, request)| store.held(request)).unwrap_or_default()
    }

    /// Puts an answer into the words of the log.
    fn note(&mut self, answer: &Answer) {
        let (result, reason) = match answer {
            Answer::Ran { .. } => (RAN, None),
            Answer::Refused { reason } => ("refused", Some(reason)),
            Answer::CannotRead { .. } => ("cannot read", None),
            Answer::Altered { reason } => ("altered", Some(reason)),
            Answer::OtherCompiler { reason } => ("other compiler", Some(reason)),
            Answer::MissingPieces { .. } => ("missing pieces", None),
            Answer::MissingCompiler { reason } => ("missing compiler", Some(reason)),
            Answer::Busy { reason } => ("busy", Some(reason)),
            Answer::Unfit { reason } => ("unfit", Some(reason)),
            Answer::TimedOut => ("timed out", None),
            Answer::Failed { reason } => ("failed", Some(reason)),
            Answer::Unknown => ("unknown", None),
        };
        result.clone_into(&mut self.entry.result);
        if let Some(reason) = reason {
            self.entry.detail.clone_from(reason);
        }
    }

    /// Writes the line, if there is a log.
    pub(super) fn log(&mut self, bytes_out: u64) {
        let Some(log) = &self.log else { return };
        let entry = Entry {
            ms: stats::ms(self.begun.elapsed()),
            bytes_out,
            ..std::mem::take(&mut self.entry)
        };
        // The response counts, and it is written.
        let _ = log.add(entry);
    }
}

/// This host's name.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
