//! The names of ports.

use std::net::IpAddr;

use margay_run_engine::Contact;
use margay_run_mpi::foreign::Address;

/// What the name of a port says: where its socket is.
pub(crate) enum Target {
    /// The socket's name, and who listens.
    Near(String, Address),
    Far(Far),
}

/// A port that is reached over the network.
#[derive(Clone)]
pub(crate) struct Far {
    pub(crate) contact: Contact,
    pub(crate) number: u64,
    pub(crate) secret: [u8; 32],
}

/// Returns where the port with that name is. On one host a name has the parts process, number of
/// the port in it, descriptor, id of the segment, its system and rank there; over the network the
/// word "net", number, secret, port of TCP and addresses.
pub(crate) fn parse(name: &str) -> Option<Target> {
    let name = name.strip_prefix("margay:")?;
    if let Some(far) = name.strip_prefix("net:") {
        return parse_far(far).map(Target::Far);
    }
    let mut parts = name.split(':');
    let pid = parts.next()?.parse().ok()?;
    let number = u64::from_str_radix(parts.next()?, 16).ok()?;
    let address = Address {
        pid,
        descriptor: parts.next()?.parse().ok()?,
        job: parts.next()?.parse().ok()?,
        system: u64::from_str_radix(parts.next()?, 16).ok()?,
        rank: parts.next()?.parse().ok()?,
    };
    Some(Target::Near(socket_name(pid, number), address))
}

fn parse_far(name: &str) -> Option<Far> {
    let mut parts = name.splitn(4, ':');
    let number = u64::from_str_radix(parts.next()?, 16).ok()?;
    let hex = parts.next()?;
    let mut secret = [0; 32];
    if hex.len() != 2 * secret.len() || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    let port = parts.next()?.parse().ok()?;
    let addresses = parts.next()?.split(',').map(|a| a.parse().ok());
    Some(Far {
        contact: Contact {
            addresses: addresses.take(Contact::MOST).collect::<Option<_>>()?,
            port,
        },
        number,
        secret,
    })
}

impl Far {
    pub(crate) fn name(&self) -> String {
        let secret: String = self.secret.iter().map(|b| format!("{b:02x}")).collect();
        let addresses = self.contact.addresses.iter().map(IpAddr::to_string);
        let addresses: Vec<String> = addresses.collect();
        format!(
            "margay:net:{:016x}:{secret}:{}:{}",
            self.number,
            self.contact.port,
            addresses.join(",")
        )
    }
}

pub(crate) fn socket_name(pid: u32, number: u64) -> String {
    format!("margay-port-{pid}-{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_ports_are_and_others_say_nothing() {
        let far = Far {
            contact: Contact {
                addresses: vec!["10.1.2.3".parse().unwrap(), "2001:db8::7".parse().unwrap()],
                port: 40_000,
            },
            number: 0x1234,
            secret: std::array::from_fn(|i| i as u8),
        };
        let name = far.name();
        let Some(Target::Far(read)) = parse(&name) else {
            panic!("{name}");
        };
        assert_eq!((read.contact, read.number), (far.contact, far.number));
        assert_eq!(read.secret, far.secret);
        let near = parse("margay:7:ff:100:12:a0:3");
        assert!(matches!(near, Some(Target::Near(name, address))
            if name == socket_name(7, 255) && (address.system, address.rank) == (0xa0, 3)));
        for wrong in [
            "",
            "margay:",
            "margay:net:",
            "margay:net:1:00:4:::1",
            "margay:7:ff:1:2",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        assert!(parse(&name.replace("40000", "70000")).is_none());
    }
}
