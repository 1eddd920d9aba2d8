//! What a manifest must and may not say by the way in which jobs are handed over. It knows nothing of the tools that
//! work so.

use super::Checker;
use crate::adapter::shape::{Raw, RawBatch};
use crate::adapter::strict::Object;
use crate::adapter::template::{Argv, Element, List, Scalar, Template};
use crate::adapter::{Batch, Env, HandOver, Place, Shipping};

/// The placeholders that each way knows beside those of a job.
const OF_BATCH: [Scalar; 7] = [
    Scalar::Compiler,
    Scalar::LinkerOutput,
    Scalar::Tool,
    Scalar::Link,
    Scalar::Private,
    Scalar::Seconds,
    Scalar::Tasks,
];
const OF_WRAP: [Scalar; 3] = [Scalar::LinkerOutput, Scalar::Tool, Scalar::Link];

impl Checker {
    /// The keys that do not go together.
    pub(super) fn keys_of_hand_over(&mut self, raw: &Raw) {
        let hand_over = raw.hand_over;
        if hand_over == HandOver::Each {
            return;
        }
        let place = if hand_over == HandOver::Batch { Place::Farm } else { Place::Local };
        if raw.place != place {
            let why = match hand_over {
                HandOver::Wrap => "nothing shows where a wrapping tool runs jobs; write local",
                _ => "a batch is for a farm; write farm",
            };
            self.add("place", why);
        }
        if raw.shipping != Shipping::Direct {
            self.add("shipping", format_args!("{hand_over} needs direct: the tool sees our files"));
        }
        if raw.hosts.is_some() {
            self.add("hosts", format_args!("with {hand_over} the tool chooses the hosts"));
        }
        if raw.tripwire.is_some() {
            self.add("tripwire", format_args!("with {hand_over} nothing would run into it"));
        }
    }

    pub(super) fn batch(
        &mut self,
        hand_over: HandOver,
        raw: Option<Object<RawBatch>>,
    ) -> Option<Batch> {
        let Some(Object(raw)) = raw else {
            if hand_over == HandOver::Batch {
                self.add("batch", "is needed: what the tool's task file is");
            }
            return None;
        };
        if hand_over != HandOver::Batch {
            self.add("batch", "only for the hand-over batch");
        }
        let RawBatch { task_file, never_here, inside, all_here } = raw;
        for (i, arg) in never_here.iter().enumerate() {
            if arg.is_empty() || arg.contains('\0') {
                self.add(format_args!("batch.never_here[{i}]"), "must be an argument");
            }
        }
        if let Some(name) = &inside {
            self.variable("batch.inside", name);
        }
        self.line("batch.all_here", all_here.as_deref());
        Some(Batch { task_file, never_here, inside, all_here })
    }

    /// What stands in for jobs in the command of this way, and that nothing of a single job does.
    pub(super) fn stands_for_all(&mut self, argv: &[Element], hand_over: HandOver) {
        let (needed, bridge) = match hand_over {
            HandOver::Each => return,
            HandOver::Batch => ("{tasks}, the task file", false),
            HandOver::Wrap => ("the element {bridge...}, what the tool is to run", true),
        };
        let is_it = |element: &Element| match element {
            Element::Splice(list) => bridge && *list == List::Bridge,
            Element::One(template) => !bridge && template.scalars().any(|s| s == Scalar::Tasks),
        };
        if !argv.iter().any(is_it) {
            self.add("command", format_args!("needs {needed}"));
        }
        for element in argv {
            if let Element::Splice(list) = element
                && !is_it(element)
            {
                self.add("command", format_args!("{{{list}...}} belongs to a job"));
            }
        }
    }

    /// The placeholders of all templates, by the way in which jobs are handed over.
    pub(super) fn known_there(&mut self, hand_over: HandOver, command: &Argv, env: &Env) {
        let in_command = command.0.iter().filter_map(|element| match element {
            Element::One(template) => Some(template),
            Element::Splice(_) => None,
        });
        let templates = in_command.chain(env.set.iter().map(|(_, template)| template));
        let mut wrong: Vec<Scalar> = templates.flat_map(Template::scalars).collect();
        wrong.retain(|scalar| match hand_over {
            HandOver::Each => *scalar == Scalar::Tasks,
            HandOver::Batch => !OF_BATCH.contains(scalar),
            HandOver::Wrap => !OF_WRAP.contains(scalar),
        });
        for scalar in wrong {
            self.add("command", format_args!("{{{scalar}}} is not known with {hand_over}"));
        }
        if hand_over == HandOver::Each && command.0.contains(&Element::Splice(List::Bridge)) {
            self.add("command", "{bridge...} is for the hand-over wrap");
        }
    }
}
