//! A node of icecream without icecream: an environment as a node unpacks it, and what its daemon starts there. It
//! does not know what is tested.

use std::fs::{self, File};

use dtlto_bridge::bundle::Shipped;
use dtlto_bridge::bundle::{Answer, Expected, Limits, Prepared, receive};
use dtlto_bridge::environment::{Environment, check};

use super::{Folder, Run, tool};

/// The user of icecream's jobs.
const NOBODY: u32 = 65_534;
const OBJECT: &str = "icecc-1_x.o";

/// An unpacked environment, for jobs one after the other.
pub(crate) struct Node {
    pub(crate) folder: Folder,
    files: Vec<Shipped>,
}

impl Node {
    /// Unpacks it; an error says why that cannot be used here.
    pub(crate) fn new(environment: &Environment) -> Result<Node, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can enter a chroot".to_owned());
        }
        let folder = Folder::new();
        check(&environment.file, "", &folder.path("")).unwrap();
        // As on a node, where the daemon's user unpacks it, jobs can write everywhere.
        let own = |path| std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        let files = environment.files.clone();
        files.iter().for_each(|file| own(folder.path(&file.path)));
        own(folder.path(""));
        Ok(Node { folder, files })
    }

    /// A program there, as the daemon starts it.
    pub(crate) fn run(&self, program: &str) -> Run {
        self.run_under(&[], program)
    }

    fn run_under(&self, before: &[&str], program: &str) -> Run {
        let mut words = before.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        words.push(tool("unshare").display().to_string());
        words.extend([format!("--setuid={NOBODY}"), format!("--setgid={NOBODY}")]);
        words.extend([format!("--root={}", self.folder.path("").display()), "--wd=/tmp".into()]);
        words.push(program.to_owned());
        Run::new(&words[0]).args(&words[1..])
    }

    /// Does a job, and returns the answer and the object.
    #[track_caller]
    pub(crate) fn answer(&self, prepared: &mut Prepared) -> (Answer, Vec<u8>) {
        self.answer_under(&[], prepared).expect("there is no response")
    }

    /// The same, started by the command line `before`; none: there is no response. The worker never prints.
    #[track_caller]
    pub(crate) fn answer_under(
        &self,
        before: &[&str],
        prepared: &mut Prepared,
    ) -> Option<(Answer, Vec<u8>)> {
        let outside = Folder::new();
        prepared.request.environment.clone_from(&self.files);
        let request = outside.path("request");
        prepared.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
        let line = "-x c -Xclang -main-file-name -Xclang 7f3a/a.o.0.i -Xclang \
                    -fdebug-compilation-dir -Xclang /home/me -target x86_64-pc-linux-gnu -c -";
        // What is mounted for a job is gone after it: the response is fetched before that.
        let fetch = "exec <\"$0\"; fetch=$1; from=$2; shift 2; \"$@\"; code=$?; \
                     [ ! -e \"$from\" ] || cat \"$from\" >\"$fetch\"; rm -f \"$from\"; exit $code";
        let response = outside.path("response");
        let inner = ["sh", "-c", fetch].map(str::to_owned).into_iter();
        let inner = inner.chain(
            [&request, &response, &self.folder.path("tmp").join(OBJECT)]
                .map(|path| path.display().to_string()),
        );
        let words: Vec<String> =
            before.iter().map(|word| (*word).to_owned()).chain(inner).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self
            .run_under(&words, "/usr/bin/clang")
            .args(line.split_whitespace())
            .args(["-o", OBJECT, "-no-canonical-prefixes"])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .go()
            .ok();
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output}");
        let object = outside.path("out.o");
        let outputs = [("out.o".to_owned(), object.clone())];
        let expected = Expected { nonce: prepared.request.nonce, link: "7f3a", outputs: &outputs };
        let received = receive(File::open(response).ok()?, &expected, &Limits::default());
        let answer = received.unwrap_or_else(|fault| panic!("{fault}")).response.answer;
        Some((answer, fs::read(object).unwrap_or_default()))
    }
}
