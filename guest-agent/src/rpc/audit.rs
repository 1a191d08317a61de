//! `AuditService`: the event stream.

use std::sync::Arc;

use host_proto::error::Reason;
use host_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use v1::subscribe_response::Item;

use super::{Agent, event};
use crate::audit::{Items, Seq, Subscription};

/// Messages that wait for the transport; the ring holds the rest.
const CHANNEL: usize = 16;

pub(super) struct Service(Arc<Agent>);

impl Service {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self(agent)
    }
}

type ToHost = mpsc::Sender<Result<v1::SubscribeResponse, Status>>;

#[tonic::async_trait]
impl v1::audit_service_server::AuditService for Service {
    type SubscribeStream = ReceiverStream<Result<v1::SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let v1::SubscribeRequest { after_sequence, follow } = request.into_inner();
        let subscription = self
            .0
            .context
            .audit
            .subscribe(Seq::new(after_sequence))
            .map_err(|error| Reason::SequenceInFuture.status(error.to_string()))?;
        let (to_host, responses) = mpsc::channel(CHANNEL);
        tokio::spawn(async move {
            // An error only says that the host has gone.
            let _ = deliver(subscription, follow, &to_host).await;
        });
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}

async fn deliver(
    mut subscription: Subscription,
    follow: bool,
    to_host: &ToHost,
) -> Result<(), mpsc::error::SendError<Result<v1::SubscribeResponse, Status>>> {
    loop {
        let Items { lost, events } = subscription.next_batch();
        if lost.is_none() && events.is_empty() {
            if !follow {
                return Ok(());
            }
            tokio::select! {
                () = subscription.changed() => continue,
                () = to_host.closed() => return Ok(()),
            }
        }
        let lost = lost.map(|range| {
            let (first_sequence, last_sequence) = range.into_inner();
            Item::Lost(v1::LostEvents { first_sequence, last_sequence })
        });
        let events = events.iter().map(|recorded| Item::Event(event::translate(recorded)));
        for item in lost.into_iter().chain(events) {
            to_host.send(Ok(v1::SubscribeResponse { item: Some(item) })).await?;
        }
    }
}
