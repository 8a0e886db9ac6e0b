//! Receives a backup over the network:
//! `existing segments ─► POST /backup ─► frames ─► a directory next to the target`.

use std::path::Path;

use anyhow::{Context, bail};
use api::state::backup;
use engine::offline::{Damage, PendingBackup, Receiver};
use values::naming;
use wire::outgoing::Opened;
use wire::server::BODY_BYTES_MAX;

use crate::cli::progress::Progress;
use crate::remote::client::{self, Client};
use crate::remote::kubeconfig::Settings;

/// Receives a backup of a server into the store directory `store`. The server is the one in `kubeconfig`, or
/// `server` if given. Returns the backup and the naming profile of the server.
pub fn receive(
    kubeconfig: &Path,
    server: Option<&str>,
    store: &Path,
    on_damage: impl FnMut(&Damage),
) -> anyhow::Result<(PendingBackup, &'static str)> {
    let client = Client::new(Settings::read(kubeconfig)?, server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(transfer(&client, store, on_damage))
}

async fn transfer(
    client: &Client,
    store: &Path,
    mut on_damage: impl FnMut(&Damage),
) -> anyhow::Result<(PendingBackup, &'static str)> {
    let mut receiver = Receiver::begin(store)?;
    let mut progress = Progress::new("check existing segments", 0);
    let held = receiver.held(BODY_BYTES_MAX, |done, total| progress.update_of(done, total));
    drop(progress);
    // The connection must live until the response body has been read.
    let Opened { response, connection: _connection } = client.post(backup::PATH, held).await?;
    let profile = response.headers().get(backup::NAMING).and_then(|value| value.to_str().ok());
    let Some(naming) = naming::ALL.iter().find(|naming| Some(naming.profile) == profile) else {
        bail!("the server does not state the naming profile of its store");
    };
    let mut body = response.into_body();
    let mut progress = Progress::new("backup", 0);
    while let Some(bytes) = client::next(&mut body).await? {
        receiver.take(&bytes, &mut on_damage)?;
        let (done, total) = receiver.progress();
        progress.update_of(done, total);
    }
    Ok((receiver.ready()?, naming.profile))
}
