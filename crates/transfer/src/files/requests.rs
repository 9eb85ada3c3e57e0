//! Counts of requests to a store, in messages.

use headroom_transfer_proto::message::StoreRequests;

use super::store::Requests;

/// Writes counts for a message.
pub(crate) fn to_message(requests: &Requests) -> StoreRequests {
    let Requests {
        list,
        head,
        get,
        put,
        create,
        part,
        complete,
        copy,
        delete,
        abort,
        retried,
        slowed,
    } = *requests;
    StoreRequests {
        list,
        head,
        get,
        put,
        create,
        part,
        complete,
        copy,
        delete,
        abort,
        retried,
        slowed,
    }
}

/// Reads the counts of a message.
pub(crate) fn of_message(requests: &StoreRequests) -> Requests {
    let StoreRequests {
        list,
        head,
        get,
        put,
        create,
        part,
        complete,
        copy,
        delete,
        abort,
        retried,
        slowed,
    } = *requests;
    Requests { list, head, get, put, create, part, complete, copy, delete, abort, retried, slowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_same_after_a_message() {
        let requests =
            Requests { list: 1, head: 2, put: 3, abort: 4, slowed: 5, ..Requests::default() };
        assert_eq!(of_message(&to_message(&requests)), requests);
    }
}
