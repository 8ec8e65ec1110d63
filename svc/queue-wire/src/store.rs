//! Where a queue keeps its state.

/// What begins the URL of a database.
const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// The schema where the URL names none.
const SCHEMA: &str = "margay";

/// The word that says that a file of the queue's folder is the store.
pub const IN_FILE: &str = "file";

/// The URL of a database, as libpq has it, with a schema in which the tables are:
/// `postgresql://user@host/database?schema=name`. It has no password, so that it can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    shown: String,
    /// Without the schema.
    connection: String,
    schema: String,
    user: Option<String>,
}

impl StoreUrl {
    /// That of a text; none where it names the file.
    ///
    /// # Errors
    /// In words: it is no such URL. A password in it is not repeated.
    pub fn of(text: &str) -> Result<Option<StoreUrl>, String> {
        if text == IN_FILE {
            return Ok(None);
        }
        let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
        let Some(rest) = rest else {
            return Err(
                "--store names where the queue's state is kept: file, or a database by its URL: \
                 postgresql://user@host/database"
                    .into(),
            );
        };
        let (before, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = before.split('/').next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let names = |name: &str| {
            parameters
                .split('&')
                .any(|p| p.split('=').next() == Some(name))
        };
        if user.is_some_and(|user| user.contains(':')) || names("password") {
            return Err(
                "--store: others can see the password in the URL, in the list of processes; put it into ~/.pgpass \
                 instead, in a line HOST:PORT:DATABASE:USER:PASSWORD"
                    .into(),
            );
        }
        let (own, others): (Vec<&str>, Vec<&str>) = parameters
            .split('&')
            .filter(|parameter| !parameter.is_empty())
            .partition(|parameter| parameter.starts_with("schema="));
        let schema = own.last().and_then(|own| own.split_once('='));
        let schema = schema.map_or(SCHEMA, |(_, name)| name);
        let is_plain = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
        let begins_well = !schema.starts_with(|c: char| c.is_ascii_digit());
        if schema.is_empty() || schema.len() > 63 || !schema.chars().all(is_plain) || !begins_well {
            return Err(format!(
                "--store: the schema '{}' is not one of small letters, digits and _, which begins with a letter",
                schema.escape_debug()
            ));
        }
        let mut connection = format!("postgresql://{before}");
        if !others.is_empty() {
            connection = format!("{connection}?{}", others.join("&"));
        }
        Ok(Some(StoreUrl {
            shown: text.to_owned(),
            connection,
            schema: schema.to_owned(),
            user: user.map(str::to_owned),
        }))
    }

    /// As the user wrote it.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// As libpq takes it.
    #[must_use]
    pub fn connection(&self) -> &str {
        &self.connection
    }

    /// The schema of its tables.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The database's name of who connects.
    #[must_use]
    pub fn user(&self) -> String {
        self.user.clone().unwrap_or_else(crate::user)
    }

    /// The same database with another schema.
    #[must_use]
    pub fn with_schema(&self, name: &str) -> String {
        let joint = if self.connection.contains('?') {
            '&'
        } else {
            '?'
        };
        format!("{}{joint}schema={name}", self.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_database_and_a_schema_and_no_password() {
        let url = |text: &str| StoreUrl::of(text).unwrap().unwrap();
        let plain = url("postgres://ann@db:5433/queues");
        assert_eq!(plain.connection(), "postgresql://ann@db:5433/queues");
        assert_eq!((plain.schema(), &*plain.user()), ("margay", "ann"));
        let named = url("postgresql:///q?host=/run/x&schema=of_ann&sslmode=require");
        let without = "postgresql:///q?host=/run/x&sslmode=require";
        assert_eq!((named.connection(), named.schema()), (without, "of_ann"));
        assert_eq!(named.with_schema("b"), format!("{without}&schema=b"));
        assert_eq!(
            plain.with_schema("b"),
            "postgresql://ann@db:5433/queues?schema=b"
        );
        assert_eq!(StoreUrl::of(IN_FILE), Ok(None));
        for secret in [
            "postgresql://ann:hidden@db/q",
            "postgresql://db/q?user=ann&password=hidden",
        ] {
            let error = StoreUrl::of(secret).unwrap_err();
            assert!(
                error.contains("~/.pgpass") && !error.contains("hidden"),
                "{error}"
            );
        }
        for wrong in [
            "mysql://db/q",
            "",
            "postgresql://db/q?schema=",
            "postgresql://db/q?schema=A",
            "postgresql://db/q?schema=1a",
            "postgresql://db/q?schema=a;b",
        ] {
            assert!(StoreUrl::of(wrong).is_err(), "{wrong}");
        }
    }
}
