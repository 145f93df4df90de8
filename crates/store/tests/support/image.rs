//! File systems of their own, each in a file that is mounted over a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    name: &'static str,
    make: &'static [&'static str],
    size: u64,
}

/// File systems that are tried. Below these sizes xfs and btrfs are not made.
pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        name: "ext4",
        make: &["mkfs.ext4", "-q", "-F"],
        size: 64 << 20,
    },
    Kind {
        name: "xfs",
        make: &["mkfs.xfs", "-q", "-f"],
        size: 320 << 20,
    },
    Kind {
        name: "btrfs",
        make: &["mkfs.btrfs", "-q", "-f"],
        size: 256 << 20,
    },
    // Without extents nothing can be allocated ahead.
    Kind {
        name: "ext2",
        make: &["mkfs.ext2", "-q", "-F"],
        size: 64 << 20,
    },
];

/// A mounted file system, until this is dropped.
pub(crate) struct Image {
    dir: PathBuf,
}

/// True if a program went well; says so if it did not.
fn run(words: &[&str]) -> bool {
    let (program, rest) = words.split_first().expect("a program");
    let ran = Command::new(program).args(rest).output();
    let is_done = ran.as_ref().is_ok_and(|output| output.status.success());
    if !is_done {
        println!("{words:?} is not possible here: {ran:?}");
    }
    is_done
}

impl Image {
    /// One below `home`; `None` where that is not permitted, or there are no tools for it.
    pub(crate) fn mount(kind: Kind, home: &Path) -> Option<Self> {
        let (image, dir) = (home.join("image"), home.join("mnt"));
        let file = std::fs::File::create(&image).expect("image");
        file.set_len(kind.size).expect("as long");
        std::fs::create_dir(&dir).expect("directory");
        let image = image.to_str().expect("a name");
        let make: Vec<&str> = kind.make.iter().copied().chain([image]).collect();
        let mount = ["mount", "-t", kind.name, "-o", "loop", image];
        let mount: Vec<&str> = mount.into_iter().chain(dir.to_str()).collect();
        (run(&make) && run(&mount)).then_some(Self { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts the image; true if nothing there is open any more.
    pub(crate) fn unmount(&self) -> bool {
        run(&["umount", self.dir.to_str().expect("a name")])
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Lazily, so that nothing stays in any case; it may be unmounted already.
        let dir = self.dir.to_str().expect("a name");
        let _ = Command::new("umount").args(["-l", dir]).output();
    }
}
