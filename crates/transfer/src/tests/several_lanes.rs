//! One server with which a client has several sessions, each with a lane of its own.

use quinn::Connection;

use super::spread::Watch;
use super::*;
use crate::retry::Retry;
use crate::spread::{Connecting, Servers};

const MIB: u64 = 1 << 20;

/// The connections of a transfer, with what each was told of another one's address.
#[derive(Debug, Clone, Default)]
struct Made(Arc<Mutex<Vec<(Connection, Option<SocketAddr>)>>>);

impl Made {
    fn count(&self) -> usize {
        self.0.lock().expect("nobody panicked").len()
    }

    /// Closes the last one of so many, as soon as they are there. Returns whether they are.
    fn lose_last_of(&self, count: usize) -> bool {
        let made = self.0.lock().expect("nobody panicked");
        if let Some((lost, _)) = made.get(count - 1) {
            lost.close(7_u32.into(), b"");
        }
        made.len() >= count
    }

    fn besides(&self) -> Vec<Option<SocketAddr>> {
        self.0.lock().expect("nobody panicked").iter().map(|(_, beside)| *beside).collect()
    }
}

/// Up to three lanes to one server. Large files are divided into ranges of 1 MiB and more.
fn lanes<'a>(
    ground: &'a Ground,
    server: &'a Server,
    made: &'a Made,
    watch: &Arc<Watch>,
) -> Servers<'a, Watch> {
    let connect = move |_: usize, beside: Option<SocketAddr>| {
        let connecting = async move {
            let client = ground.connect(server).await?;
            let connection = client.connection().clone();
            made.0.lock().expect("nobody panicked").push((connection, beside));
            Ok(client)
        };
        Box::pin(connecting) as Connecting<'a>
    };
    Servers {
        count: 1,
        connect: Box::new(connect),
        lanes: 3,
        retry: Retry::Never,
        rate_bps: None,
        range_bytes: MIB,
        observer: Arc::clone(watch),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).expect("a file") == std::fs::read(other).expect("a file")
}

#[test]
fn ranges_of_a_file_are_fetched_on_all_lanes_and_those_of_a_lost_one_on_others() {
    let ground = Ground::new();
    write(&ground.served("big"), &content((40 << 20) + 5));
    run(async {
        let (server, made) = (ground.start(), Made::default());
        // the first asks what the name is; nothing goes on until all lanes are there
        let losing = made.clone();
        let watch = Watch::holding(None, move || losing.lose_last_of(4));
        let all = Servers {
            // without lanes: pieces that are held hold no others
            rate_bps: Some(400_000_000),
            ..lanes(&ground, &server, &made, &watch)
        };
        let got = all.get(&[b"big".to_vec()], &ground.here("as"), false).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (1, 0), "{got:?} {:?}", watch.notes);
        assert!(is_same(&ground.here("as"), &ground.served("big")));
        let address = Some(server.address().expect("an address"));
        assert_eq!(made.besides(), [None, None, address, address]);
        // the server is not lost
        for words in ["gone", "lost", "warning"] {
            assert_eq!(watch.count(&[words]), 0, "{:?}", watch.notes);
        }
    });
}

#[test]
fn a_tree_is_fetched_on_several_lanes() {
    let ground = Ground::new();
    for n in 0..40 {
        write(&ground.served(&format!("tree/{}/{n}", n % 4)), &content(3000 + n));
    }
    write(&ground.served("tree/big"), &content(9 << 20));
    run(async {
        let (server, made) = (ground.start(), Made::default());
        let (watch, to) = (Watch::new(None), ground.here("to"));
        let got = lanes(&ground, &server, &made, &watch).get(&[b"tree".to_vec()], &to, false).await;
        let got = got.expect("it is fetched");
        // 41 files, the tree and four directories in it
        assert_eq!((got.stored, got.failed), (46, 0), "{got:?} {:?}", watch.notes);
        assert_eq!(tree(&to.join("tree")), tree(&ground.served("tree")));
    });
}

#[test]
fn lanes_are_opened_only_when_there_is_something_to_divide() {
    let ground = Ground::new();
    write(&ground.served("small"), &content(70_000));
    write(&ground.served("tree/a"), &content(3000));
    write(&ground.served("tree/b"), &content(80_000));
    run(async {
        let server = ground.start();
        // one asks for the names, and another one fetches a file; or it fetches the files of a
        // tree, and a third one what is left of that
        for (from, connections) in [("small", 2), ("tree", 3)] {
            let (made, watch) = (Made::default(), Watch::new(None));
            let (from, to) = ([from.as_bytes().to_vec()], ground.here("to/"));
            let got = lanes(&ground, &server, &made, &watch).get(&from, &to, false).await;
            let got = got.expect("it is fetched");
            assert_eq!(got.failed, 0, "{got:?} {:?}", watch.notes);
            assert_eq!(made.count(), connections, "{from:?}");
        }
    });
}
