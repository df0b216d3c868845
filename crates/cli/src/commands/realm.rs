//! `cistern realm`: realms, their use and their quotas.

mod ls;
mod make;
mod quota;
mod stat;

use crate::local::RealmRow;
use crate::show;

super::commands! {
    /// Make and list realms, and set their quotas
    Realm:
    Make(make::RealmMake),
    Ls(ls::RealmList),
    Stat(stat::RealmStat),
    Quota(quota::RealmQuota),
}

/// Realms for people; use beside quota.
fn table(rows: &[RealmRow]) -> String {
    let of = |used: String, most: Option<String>| most.map_or_else(|| used.clone(), |most| format!("{used} of {most}"));
    let mut cells = vec![["REALM", "WITHIN", "OBJECTS", "BYTES", "PATH"].map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        vec![
            row.realm.to_string(),
            row.parent.map_or_else(|| "-".to_owned(), |parent| parent.to_string()),
            of(row.objects.to_string(), row.objects_max.map(|most| most.to_string())),
            of(row.bytes.to_string(), row.bytes_max.map(|most| most.to_string())),
            row.path.to_string(),
        ]
    }));
    show::columns(&cells)
}
