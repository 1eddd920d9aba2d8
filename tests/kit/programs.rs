//! Programs to link: a small one whose modules import from each other, a larger one that is generated, and
//! Lua. It does not know how they are linked.

use std::fs;
use std::path::Path;

use super::{Folder, Run, clang, clangxx, target_dir};

/// Three C++ modules that need no library. ThinLTO imports across all of them: `main` calls into
/// `b` and `c`, and a static constructor of `c` calls into `b`. A static local and a static
/// function are promoted on the way, and a loop looks different at each level of optimisation.
pub(crate) struct Modules;

impl Modules {
    pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

    /// What the linked program exits with.
    pub(crate) const EXIT: i32 = 42;

    const SOURCES: [&str; 3] = [
        "int tripled(int);
         int early_value();
         int squares(int);
         int main(int argc, char **) {
             return tripled(1) + early_value() - 2 + squares(argc - 1);
         }",
        "int ticks() { static int calls = 40; return ++calls; }
         __attribute__((noinline)) static int hidden(int x) { return x * 3; }
         int tripled(int x) { return hidden(x); }",
        "int ticks();
         struct Early { int value; Early() : value(ticks()) {} };
         static Early early;
         int early_value() { return early.value; }
         int values[64] = {3, 1, 4, 1, 5, 9, 2, 6};
         int squares(int n) {
             int sum = 0;
             for (int i = 0; i < n; ++i) sum += values[i] * values[i];
             return sum;
         }",
    ];

    /// Compiles the three to `into/a.o` and so on, with `flags` besides `-O2 -flto=thin`.
    #[track_caller]
    pub(crate) fn compile(folder: &Folder, into: &str, flags: &[&str]) {
        folder.mkdir(into);
        for (name, source) in Self::NAMES.iter().zip(Self::SOURCES) {
            folder.write(format!("src/{name}.cpp"), source);
            clangxx()
                .args(["-O2", "-flto=thin", "-fno-rtti", "-c"])
                .args(flags)
                .arg(format!("src/{name}.cpp"))
                .arg("-o")
                .arg(folder.path(into).join(format!("{name}.o")))
                .cwd(folder.path(""))
                .go()
                .ok();
        }
    }
}

/// A generated program in C++ whose modules call each other in a tangle, so that each imports from many. Every
/// one has its own class with virtual functions, instances of common templates, inline functions with statics,
/// statics of its own and a function that throws. It needs the C++ library.
pub(crate) struct Family;

impl Family {
    pub(crate) const SIZE: usize = 26;

    const HEADER: &str = "
        struct Shape { virtual ~Shape() = default; virtual int area(int) const = 0; };
        struct Oops { int why; };
        template <class T, int N> struct Ring {
            T items[N] = {}; int next = 0;
            void push(T item) { items[next++ % N] = item; }
            T sum() const { T all = 0; for (T item : items) all += item; return all; }
        };
        template <class T> T twice(T x) { static T seen = 0; seen += x; return x + (seen & 1); }
        inline int tick() { static int calls = 0; return ++calls; }
        inline int measure(const Shape &shape, int n) { return shape.area(n) + tick() % 3; }
        ";

    /// The source of module `n`.
    fn source(n: usize, size: usize) -> String {
        let (near, far) = ((n * 7 + 3) % size, (n * 3 + 1) % size);
        let (room, odd) = (n % 5 + 2, 2 * n + 1);
        let main = "int main(int argc, char **) { return (step0(argc + 6) & 127) + 1; }";
        format!(
            "#include \"family.h\"
            int step{near}(int); int step{far}(int);
            namespace {{
            struct Own final : Shape {{
                int edge;
                explicit Own(int e) : edge(e) {{}}
                int area(int n) const override {{ return edge * n + {n}; }}
            }};
            int counter = {n};
            Own early(tick());
            }}
            __attribute__((noinline)) static int hidden(int x) {{ static int calls; return x * {odd} + ++calls; }}
            int thrower{n}(int x) {{ if (x == {room}) throw Oops{{hidden(x)}}; return twice<long>(x); }}
            int step{n}(int x) {{
                if (x <= 0) return early.area(x);
                Own own(hidden(x));
                Ring<int, {room}> ring;
                for (int i = 0; i < x; ++i) ring.push(twice(i + counter));
                counter += ring.sum();
                try {{ counter += thrower{n}(x); }} catch (const Oops &oops) {{ counter ^= oops.why; }}
                return measure(own, counter & 15) + step{near}(x - 1) + step{far}(x / 2 - 1);
            }}
            {}",
            if n == 0 { main } else { "" }
        )
    }

    /// The object of module `n`.
    pub(crate) fn object(n: usize) -> String {
        format!("m{n}.o")
    }

    /// Compiles all modules into the folder `into`, with `flags` besides the usual.
    #[track_caller]
    pub(crate) fn compile(folder: &Folder, into: &str, flags: &[&str]) {
        Self::compile_many(folder, into, flags, Self::SIZE);
    }

    /// The same for a program of `size` modules.
    #[track_caller]
    pub(crate) fn compile_many(folder: &Folder, into: &str, flags: &[&str], size: usize) {
        folder.mkdir(into);
        folder.write("src/family.h", Self::HEADER);
        let start = |n| {
            let source = format!("src/m{n}.cpp");
            folder.write(&source, Self::source(n, size));
            let run = clangxx().args(["-O2", "-flto=thin", "-c"]).args(flags).arg(source).arg("-o");
            run.arg(folder.path(into).join(Self::object(n))).cwd(folder.path("")).start()
        };
        let numbers: Vec<_> = (0..size).collect();
        for some in numbers.chunks(4) {
            let running: Vec<_> = some.iter().map(|&n| start(n)).collect();
            running.into_iter().for_each(|run| drop(run.wait().ok()));
        }
    }
}

/// Compiles a module of a program of its own to the object `name`, for which the backend takes some seconds.
#[track_caller]
pub(crate) fn long_module(folder: &Folder, name: &str) {
    const FUNCTIONS: usize = 200;
    let function = |n| {
        format!(
            "int f{n}(int *p, int n) {{
                 int s = {n};
                 for (int i = 0; i < n; i++)
                     for (int j = 0; j < i; j++) s += p[i] * {n} ^ p[j] >> (i & 7);
                 for (int i = 0; i < n; i++) p[i] = p[i] * s + p[n - i];
                 return s;
             }}\n"
        )
    };
    let functions: String = (0..FUNCTIONS).map(function).collect();
    let calls: String = (0..FUNCTIONS).map(|n| format!(" + f{n}(p, n)")).collect();
    let main = format!("int main(int n, char **v) {{ int p[64] = {{n}}; return 0{calls}; }}");
    folder.write("long.c", functions + &main);
    clang().args(["-O1", "-flto=thin", "-c", "long.c", "-o", name]).cwd(folder.path("")).go().ok();
}

/// Copies Lua's 33 modules of ThinLTO bitcode into `o/` and names them. The first test that asks
/// has them fetched and compiled; without a network that may fail, and the error tells why.
pub(crate) fn lua(folder: &Folder) -> Result<Vec<String>, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/program");
    let run = Run::new(script).arg("lua").env("CARGO_TARGET_DIR", target_dir()).limit(300).go();
    if !run.status.success() {
        return Err(format!("no Lua: {run}"));
    }
    folder.mkdir("o");
    let modules = fs::read_dir(Path::new(run.stdout.trim_end()).join("o")).unwrap();
    let copy = |module: fs::DirEntry| {
        let name = format!("o/{}", module.file_name().to_str().unwrap());
        fs::copy(module.path(), folder.path(&name)).unwrap();
        name
    };
    let mut names: Vec<_> = modules.map(Result::unwrap).map(copy).collect();
    names.sort();
    Ok(names)
}
