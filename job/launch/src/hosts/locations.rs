//! The message by which each host learns of all others.

use margay_core_registry::hosts::{Host, Location};

use super::wire::{Broken, Reader, Writer, kind};

/// Writes the message with all hosts and the locations of all ranks.
pub(super) fn encode_hosts(hosts: &[Host], locations: &[Location]) -> Vec<u8> {
    let mut to = Writer::new(kind::GO);
    to.number(hosts.len() as u64);
    for host in hosts {
        to.bytes(host.name.as_bytes());
        to.number(host.addresses.len() as u64);
        for address in &host.addresses {
            to.bytes(address.to_string().as_bytes());
        }
        to.number(host.cores);
    }
    to.number(locations.len() as u64);
    for location in locations {
        to.number(u64::from(location.host) | u64::from(location.port) << 32);
    }
    to.done()
}

/// Reads it.
pub(super) fn decode_hosts(from: &mut Reader<'_>) -> Result<(Vec<Host>, Vec<Location>), Broken> {
    let hosts = (0..from.number()?).map(|_| {
        let name = from.text()?;
        let addresses = (0..from.number()?).map(|_| from.text()?.parse().map_err(|_| Broken));
        Ok(Host {
            name,
            addresses: addresses.collect::<Result<_, Broken>>()?,
            cores: from.number()?,
        })
    });
    let hosts = hosts.collect::<Result<Vec<_>, Broken>>()?;
    let locations = (0..from.number()?).map(|_| {
        let word = from.number()?;
        Ok(Location {
            host: word as u32,
            port: (word >> 32) as u16,
        })
    });
    Ok((hosts, locations.collect::<Result<_, Broken>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_locations_are_read_as_they_were_written() {
        let hosts = [Host {
            name: "a".into(),
            addresses: vec!["10.1.2.3".parse().unwrap(), "::1".parse().unwrap()],
            cores: 5,
        }];
        let locations = [Location {
            host: 0,
            port: 65_535,
        }; 3];
        let bytes = encode_hosts(&hosts, &locations);
        let read = decode_hosts(&mut Reader(&bytes[5..])).unwrap();
        assert_eq!((&read.0[..], &read.1[..]), (&hosts[..], &locations[..]));
        for cut in 5..bytes.len() {
            assert!(decode_hosts(&mut Reader(&bytes[5..cut])).is_err());
        }
    }
}
