//! By which network the ranks of several hosts reach each other, as users write it.

/// The environment variable with a network.
pub const VARIABLE: &str = "MARGAY_NET";
/// The environment variable with the file of libfabric.
pub const VARIABLE_LIBRARY: &str = "MARGAY_LIBFABRIC";

/// The environment variable with the token that lets hosts join a job. Ranks need not know it.
pub const VARIABLE_TOKEN: &str = "MARGAY_JOIN_TOKEN";
/// The port at which hosts join, where none is named.
pub const JOIN_PORT: u16 = 7117;

/// A network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network<'a> {
    /// TCP alone.
    #[default]
    Tcp,
    /// Libfabric, and TCP for what ranks need to find each other.
    Fabric {
        /// The provider of libfabric; where there is none, the first that reaches other hosts.
        provider: Option<&'a str>,
        /// Its domain, a device for most providers; where there is none, its first.
        domain: Option<&'a str>,
    },
}

impl<'a> Network<'a> {
    /// Reads `tcp`, `ofi`, `ofi:PROVIDER` or `ofi:PROVIDER:DOMAIN`; none where it is something
    /// else.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Network<'a>> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let (provider, domain) = rest.split_once(':').unwrap_or((rest, ""));
        let some = |word: &'a str| (!word.is_empty()).then_some(word);
        match name {
            "tcp" if text == name => Some(Network::Tcp),
            "ofi" if text == name || !provider.is_empty() => Some(Network::Fabric {
                provider: some(provider),
                domain: some(domain),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_users_write_them() {
        let fabric = |provider, domain| Some(Network::Fabric { provider, domain });
        for (text, network) in [
            ("tcp", Some(Network::Tcp)),
            ("ofi", fabric(None, None)),
            ("ofi:tcp", fabric(Some("tcp"), None)),
            ("ofi:udp;ofi_rxd", fabric(Some("udp;ofi_rxd"), None)),
            ("ofi:verbs:mlx5_0", fabric(Some("verbs"), Some("mlx5_0"))),
            ("ofi:", None),
            ("ofi::eth0", None),
            ("tcp:eth0", None),
            ("ucx", None),
            ("", None),
        ] {
            assert_eq!(Network::parse(text), network, "{text}");
        }
    }
}
