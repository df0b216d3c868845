//! The rules that are judged, each with the sentence it stands for and where the specification says so.
//!
//! Decides ids, statements and sections. `docs/audit-rules.md` is made from this table.
//! Leaves to others: judging (`checks`).

macro_rules! rules {
    ($($name:ident $id:literal $section:literal $text:literal;)*) => {
        /// A rule of the protocol that a capture can show kept or broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each has its statement in the table")]
        pub enum Rule { $($name),* }

        impl Rule {
            /// Every rule, in order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its short name, in reports and on the command line.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id),* }
            }

            /// What it says, in a sentence.
            #[must_use]
            pub const fn statement(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Section of `wire-spec.md` that says so.
            #[must_use]
            pub const fn section(self) -> &'static str {
                match self { $(Self::$name => $section),* }
            }
        }
    };
}

rules! {
    Decodes "decodes" "3.5" "What either side sends decodes to its last byte.";
    DatagramSize "datagram-size" "3.7" "No datagram is longer than was agreed, nor than 1,232 bytes before that.";
    ControlSize "control-size" "3.7" "Handshakes, control messages, notices, receipts and NACKs fit a datagram of 548 bytes.";
    AnswerLimit "answer-limit" "3.7" "An answer makes its datagram no longer than the limit of the transmission that it answers.";
    NumberOnce "packet-number-once" "3.2" "A packet number is used for one transmission of a session and direction.";
    RequestUnchanged "request-unchanged" "11.2" "A request that is sent again says the same after its Ask.";
    RepeatUnchanged "repeat-unchanged" "6.3, 6.4" "A control message or notice that is sent again says the same.";
    FloorGrows "floor-grows" "11.2" "The floor that an agent announces never goes back.";
    Window "window" "5.3" "No request is W or more above the floor that it announces.";
    HasCause "answer-has-cause" "11.1, 11.2" "An answer echoes a transmission that carried the very message answered; a receipt names a notice.";
    AnsweredOnce "answered-once" "3.2" "A transmission is acted on once, whatever copies of it arrive: each of its messages has one answer that echoes it.";
    ReplyFits "reply-fits-request" "6.2, 6.5" "A reply is of the kind, and about the object, that its request asks for.";
    OneResult "one-result" "11.2, 11.3" "All answers to a nonce say the same, and none follows or precedes \"not executed\".";
    OneEffect "one-effect" "5.4" "A version of an object is made by one mutation.";
    VersionsForward "versions-forward" "5.4" "What was asked for after a version was shown never shows an older one.";
    GrantHasWaiter "grant-has-waiter" "6.4, 11.4" "GRANT ends the wait of a queued LOCK that was not cancelled nor over, with one grant.";
    WaitOver "wait-over" "6.4, 11.4" "WAIT_OVER ends the wait of a queued LOCK that no grant stands for: with ESTALE, BUSY, EDEADLK for an upgrade, or ECANCELED where a grant came back.";
    Cancelled "cancelled-as-said" "6.3, 11.4" "CANCELLED is about the request that its CANCEL names: one that was answered is not cancelled, nor one whose grant stands, and \"granted\" names that grant.";
    StrangerSmaller "stranger-smaller" "11.6" "HINT, CHALLENGE, REFUSE and WELCOME are smaller than the datagram that caused them.";
    Unproven "unproven-address" "11.6" "Fewer bytes go to an address that has not proven itself than came from it.";
    Cookie "cookie" "11.6" "WELCOME answers a HELLO whose cookie was given to that agent at that address for that handshake.";
    WelcomeFits "welcome-fits-hello" "6.1" "WELCOME grants no more than HELLO asked for, and OPENED tells the fate of each session that CONFIRM named.";
    SessionIds "session-ids" "11.6" "A session id is given to one handshake of one agent.";
    NoRenewal "no-renewal-after-refusal" "11.3" "After a NACK or an ENDED nothing renews that session.";
    NoGrant "no-grant-after-failure" "11.3" "Nothing is granted from a queue to a session that has failed.";
    PassedInLease "lock-passed-in-lease" "11.3" "A lock passes to another session, or a mutation passes it, when it was given back, or T after the newest transmission echoed to its holder.";
    FailureNotices "failure-after-notices" "11.3" "A session fails when a notice was sent three times in vain, a demand was not complied with, or it was superseded.";
    NotAbandoned "notice-not-abandoned" "11.3" "A notice is sent until it is receipted or its session fails: no session is renewed for long over an open one.";
    NoticeReceipted "notice-receipted" "6.4" "An agent that goes on sending has receipted each notice that it was sent a delivery timeout before.";
    GenerationsGrow "generations-grow" "11.4" "A grant has a larger generation than all that were seen before it was asked for, in the store's epoch.";
    TokensOnce "tokens-once" "11.4" "No token is granted twice.";
    ReleaseGranted "release-of-granted" "11.4" "An agent gives back only what its session was granted.";
    UseGranted "use-of-granted" "11.4" "An agent names as its own only locks that its session was granted.";
    QueueOrder "queue-order" "11.4" "No shared request passes an exclusive one that waits for the same advisory lock.";
    Grace "grace" "11.7" "After a start nothing new is granted while a former session that may hold locks is not accounted for, until T is over.";
    Reclaim "reclaim" "11.7" "What is reclaimed was granted to a former session of the same agent that was open at that start and not completed.";
    Incarnation "incarnation-grows" "11.7" "Each start of a store has a higher incarnation, and nothing of an earlier one is said after it.";
    FormerFate "former-fate" "11.6" "A former session that cannot have ended is not said to have ended.";
    StopsAfterNack "agent-stops-after-nack" "11.3" "An agent that took a NACK asks nothing more in that session.";
    StopsAfterEnd "agent-stops-after-end" "6.3" "An agent that ends its session asks nothing more in it.";
    WatchOnce "watch-one-notice" "11.5" "At most one notice of a watch is on the way per session and object.";
    Ephemeral "ephemeral-with-owner" "11.5" "An ephemeral file does not go on account of an owner whose session cannot have ended.";
    KeepAliveAnswered "keepalive-answered" "6.3, 11.2" "A KEEPALIVE is answered before what comes after it.";
}
