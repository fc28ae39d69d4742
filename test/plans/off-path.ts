/** Rooms whose statements run when a person asks, when a process starts, or for the audit log. */
export const ROOMS_OFF_PATH: readonly string[] = [
  ...["admin", "audit", "conservation", "dev", "doctor", "explain", "inbox_admin", "letters", "migrate"],
  ...["outbox_admin", "overview", "roles", "session", "testing", "tune"],
];

/** Other statements that are not on the path of a message, and why their plans may depend on statistics. */
export const OFF_PATH: Readonly<Record<string, string>> = {
  "sagabox.notify": "reads no table",
  "sagabox.set_config": "reads no table",
  ...because("read members and lanes, which are few", [
    ...[
      "lanes.acquire",
      "lanes.dismiss",
      "lanes.disown",
      "lanes.join",
      "lanes.leave",
      "lanes.look",
      "lanes.reap",
    ],
    ...["lanes.release", "lanes.renew", "ledger.beat", "ledger.leave"],
  ]),
  ...because("run when a consumer group subscribes or retires", [
    ...[
      "queue.back_to_mark",
      "queue.copy_past",
      "queue.copy_rest",
      "queue.create_group",
      "queue.create_lanes",
    ],
    ...["queue.find_group", "queue.horizon", "queue.in_turn", "queue.lock_subscriptions", "queue.mark"],
    ...["queue.passed", "queue.patience", "queue.retire", "queue.standing", "queue.subscribe"],
  ]),
  ...because("run when a person decides about a dead letter", [
    ...[
      "close",
      "deliver_again",
      "free_key",
      "keep_copy",
      "keep_message",
      "list",
      "move_place",
      "note_edit",
    ].map((name) => `dead_letter.${name}`),
    ...["dead_letter.rearm", "dead_letter.send_again", "dead_letter.show"],
  ]),
  ...because("make or drop partitions", [
    ...["history.alone", "history.lock_timeout", "history.partitions", "history.reserve_pages"],
    ...["history.still_needed", "history.today"],
  ]),
  ...because("read a bounded sample or count for gauges", [
    ...["outbox.backlog", "outbox.depths", "outbox.letters", "outbox.queued", "inbox.stats", "saga.measure"],
    ...["saga.orphans", "inbox.forget_suspects"],
  ]),
  ...because("send a window of the archive again", ["outbox.republish", "outbox.republish_count"]),
  ...because("collect blobs, or read a blob's own chunks", [
    ...[
      "candidates",
      "doom",
      "doomed",
      "forget",
      "list",
      "read",
      "remove",
      "sweep_from",
      "swept",
      "unknown",
      "write",
    ].map((name) => `blob.${name}`),
  ]),
  ...because("read declared flows", [
    ...["flow.close", "flow.forget", "flow.of_correlation", "flow.of_correlations", "flow.quiet"],
  ]),
  ...because(
    "serve a person's request about a data subject",
    [
      ...["add_fingerprint", "add_late", "dead_letters_of", "destroy_keys", "destroy_late", "end_saga"],
      ...[
        "erasure_counts",
        "erasures_after",
        "hold",
        "key_counts",
        "keys_of",
        "last_erasure",
        "left_to_rewrap",
      ],
      ...[
        "live_sagas",
        "lock_erasure",
        "lock_subject",
        "log",
        "messages",
        "messages_of",
        "open_hold",
        "park_sagas",
      ],
      ...[
        "park_sealed",
        "reapply",
        "release",
        "relog",
        "rewrap",
        "sagas_of",
        "scheduled_of",
        "scrub_dead_letters",
      ],
      ...[
        "scrub_outbox",
        "scrub_queue",
        "scrub_replies",
        "scrub_results",
        "scrubbed",
        "to_rewrap",
        "unswept",
      ],
    ].map((name) => (name.includes(".") ? name : `privacy.${name}`)),
  ),
  "sagabox.inbox.claimed": "is the caller's own statement",
};

function because(reason: string, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [`sagabox.${name}`, reason]));
}
