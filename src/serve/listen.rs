//! Where the server listens: a loopback address, another one only with an API key, or a Unix socket
//! that belongs to one user. A socket that a dead server left is replaced, a living one's is not.

use crate::error::{Error, Result};
use std::fmt;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::{Path, PathBuf};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket.
    #[cfg(unix)]
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "http://{address}/v1"),
            #[cfg(unix)]
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// Refuses an address that other machines reach while no key is set.
    pub fn check(&self, has_key: bool) -> Result<()> {
        match self {
            Listen::Tcp(address) if !has_key && !address.ip().to_canonical().is_loopback() => {
                Err(Error::invalid(format!("{address} can be reached by others, and no API key is set"))
                    .at("listen address")
                    .hint("give the server a key (--api-key-file), or listen on 127.0.0.1"))
            }
            _ => Ok(()),
        }
    }
}

/// A bound listener.
pub enum Listener {
    /// On TCP.
    Tcp(tokio::net::TcpListener),
    /// On a Unix socket.
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

/// A bound listener, where it really listens, and the file to remove at the end.
pub struct Bound {
    /// Takes connections.
    pub listener: Listener,
    /// With the port that was taken.
    pub listen: Listen,
    /// Removed when dropped.
    pub file: Option<SocketFile>,
}

impl Listener {
    /// Binds; must run within a runtime. Errors name the address and what to do.
    pub async fn bind(listen: &Listen) -> Result<Bound> {
        match listen {
            Listen::Tcp(address) => {
                let failed = |e: std::io::Error| {
                    Error::invalid(format!("cannot listen: {e}"))
                        .at(address)
                        .hint("another program may listen there: choose another --port, or 0 for a free one")
                };
                let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
                let real = listener.local_addr().map_err(failed)?;
                Ok(Bound { listener: Listener::Tcp(listener), listen: Listen::Tcp(real), file: None })
            }
            #[cfg(unix)]
            Listen::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                Ok(Bound { listener: Listener::Unix(listener), listen: listen.clone(), file: Some(file) })
            }
        }
    }
}

/// Where there are no such sockets, there is no such file.
#[cfg(not(unix))]
pub enum SocketFile {}

/// A socket in the file system, removed at the end.
#[cfg(unix)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: a file that took its place since is left alone.
    identity: (u64, u64),
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // What cannot be removed is replaced by the next server.
            let _ = fs_err::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs_err::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(unix)]
fn bind_unix(path: &Path) -> Result<(tokio::net::UnixListener, SocketFile)> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let at = path.display();
    if let Ok(meta) = fs_err::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(Error::invalid("there is a file that is no socket")
                .at(at)
                .hint("move it away, or name another path"));
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => fs_err::remove_file(path)?,
            _ => {
                return Err(Error::invalid("another server listens on this socket")
                    .at(at)
                    .hint("stop it, or name another path"));
            }
        }
    }
    let failed = |e: std::io::Error| {
        Error::invalid(format!("cannot listen: {e}"))
            .at(path.display())
            .hint("name a path of at most some 100 bytes in a folder where you may write")
    };
    let socket = tokio::net::UnixSocket::new_stream().map_err(failed)?;
    socket.bind(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    // Nobody can connect before `listen`, so there is no moment at which others could.
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok((socket.listen(1024).map_err(failed)?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, key: bool) -> Result<()> {
        Listen::Tcp(address.parse().unwrap()).check(key)
    }

    #[test]
    fn only_loopback_is_open_without_a_key() {
        for address in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(check(address, false).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:10.0.0.1]:80"] {
            assert!(check(address, true).is_ok());
            let error = check(address, false).unwrap_err().to_string();
            assert!(error.contains("no API key is set\nhint: "), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_is_private_replaced_when_dead_and_removed_at_the_end() {
        use std::os::unix::fs::PermissionsExt;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _inside = runtime.enter();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a dead server's socket stays");
        let (listener, file) = bind_unix(&path).unwrap();
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = bind_unix(&path).err().unwrap().to_string();
        assert!(error.contains("another server listens"), "{error}");
        drop((listener, file));
        assert!(!path.exists());
        fs_err::write(&path, "text").unwrap();
        assert!(bind_unix(&path).err().unwrap().to_string().contains("no socket"));
        let gone = folder.path().join("no/such/folder/s");
        assert!(bind_unix(&gone).err().unwrap().to_string().contains("cannot listen"));
    }
}
