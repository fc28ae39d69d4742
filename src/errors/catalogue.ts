/** Every code an error of ours can carry, with one sentence on what happened. Mirrored in docs/errors.md. */
export const catalogue = {
  OPTIONS_INVALID: "An option has a value that cannot be used.",
  OPTIONS_UNKNOWN_KEY: "An options object has a key that does not exist.",
  ENVIRONMENT_INVALID: "One or more environment variables have values that cannot be used.",
  APP_MODULE_INVALID: "The application module does not export what the command needs.",

  CONTRACT_INVALID: "A message contract was defined with a name, version or option that cannot be used.",
  TOPIC_INVALID: "A topic has characters or a length that not every transport can carry.",
  KEY_INVALID: "A message key is not a text of acceptable length.",
  MESSAGE_ID_INVALID: "A message id is not a text of acceptable length.",
  HEADER_INVALID: "A header has a name or value that not every transport can carry.",
  ENVELOPE_INVALID: "A received message is not a readable envelope.",
  CLOUD_EVENT_INVALID:
    "A received CloudEvent breaks the rules of CloudEvents 1.0, or holds data that is neither JSON nor text.",

  PAYLOAD_NOT_JSON: "The payload holds a value that JSON cannot carry unchanged.",
  PAYLOAD_NUL: "The payload holds a NUL character, which PostgreSQL cannot store.",
  PAYLOAD_LONE_SURROGATE: "The payload holds half of a surrogate pair, which is not valid Unicode.",
  PAYLOAD_UNSAFE_INTEGER: "The payload holds a whole number beyond 2^53 - 1, which would change on the way.",
  PAYLOAD_TOO_DEEP: "The payload is nested too deeply, or contains itself.",
  PAYLOAD_PROTOTYPE_KEY: "The payload has a key that could change the prototype of objects.",
  PAYLOAD_DUPLICATE_KEY: "The payload names the same key twice in one object.",
  PAYLOAD_TOO_LARGE: "The payload is larger than the limit.",
  PAYLOAD_INVALID: "The payload does not match the schema of its contract.",
  PAYLOAD_VERSION_UNKNOWN: "The payload has a schema version that the contract cannot read.",

  CLAIM_INVALID: "A message carries a reference to its payload that is not one of ours.",
  CLAIM_MISSING: "What a reference names is not in its store any more, or never was.",
  CLAIM_CORRUPT: "What lies in the store is not what was put there.",
  CLAIM_STORE_UNKNOWN: "A reference names a store that this bus was not given.",
  CLAIM_STORE_UNAVAILABLE: "A store of large payloads cannot be reached, is too slow or refuses us.",
  CLAIM_STORE_FULL: "A store of large payloads has no room left.",
  CLAIM_SOURCE_FAILED: "The stream that was to be attached broke off; its own error is the cause.",

  NOT_IN_TRANSACTION: "Something was published outside an open transaction.",
  TRANSACTION_ABORTED: "The transaction had already failed, so its commit became a rollback.",
  TRANSACTION_CLOSED: "A transaction was used after it had ended, or SQL inside it ended it or tried to.",
  TRANSACTION_COMMITTED:
    "SQL inside a transaction committed it early, so it can be neither finished nor retried.",
  COMMIT_UNKNOWN: "The connection was lost during COMMIT, so nobody knows whether it happened.",

  SCHEMA_NAME_INVALID: "The name of the database schema cannot be used.",
  STORAGE_NOT_MIGRATED: "The database schema lacks the tables of this version.",
  STORAGE_TOO_NEW: "The database schema was migrated by a newer, incompatible version.",
  STORAGE_PERMISSION_DENIED: "The database role may not do what was asked.",
  STORAGE_ENCODING_UNSUPPORTED: "The database has another encoding than UTF8.",
  STORAGE_POOLER_UNSUPPORTED: "A connection pooler gives this process another session for each transaction.",
  STORAGE_CLIENT_TOO_OLD: "The `pg` package is older than this version can work with.",
  STORAGE_UNAVAILABLE: "The database cannot be reached or does not answer.",
  STORAGE_MIGRATION_FAILED: "A migration failed and was rolled back.",
  EMBEDDED_POSTGRES_FAILED: "The embedded PostgreSQL server could not be started.",

  OUTBOX_FULL: "The outbox holds as many unsent messages as its limit allows.",
  OUTBOX_LEASE_LOST: "Another relay took over the lane before the result was recorded.",
  OUTBOX_ILLEGAL_MOVE: "A message cannot go from its state to the one asked for.",
  MESSAGE_NOT_FOUND: "There is no message with this id in the database.",
  MESSAGE_EXPIRED: "The time to live of a message ended before it was delivered.",

  TRANSPORT_CLIENT_MISSING: "The package that talks to the broker or store is not installed.",
  TRANSPORT_UNREACHABLE: "The broker cannot be reached.",
  TRANSPORT_UNROUTABLE: "The broker has no destination for the message.",
  TRANSPORT_REJECTED: "The broker refused the message.",
  TRANSPORT_TIMEOUT: "The broker did not confirm in time, so nobody knows whether the message arrived.",
  TRANSPORT_CANNOT_REPLAY: "The transport cannot begin at a time in what was published before.",

  HANDLER_TIMEOUT: "A handler did not finish within its time.",
  HANDLER_FAILED: "A handler threw something that is not an error.",
  HANDLER_MISSING: "No handler is registered for the message.",
  HANDLER_DUPLICATE: "Two handlers are registered for the same consumer and message.",
  HANDLER_TOO_LATE: "A handler was registered when the consumers had already begun.",
  MESSAGE_ID_MISSING: "A received message has no id, so it cannot be handled exactly once.",
  MESSAGE_KILLS_PROCESS: "The process died repeatedly while it handled this message alone.",
  DEAD_LETTER_NOT_FOUND: "There is no dead letter with this id.",
  DEAD_LETTER_CLOSED: "The dead letter was already replayed or discarded.",
  DEAD_LETTER_EDIT_REFUSED: "A dead letter cannot be replayed with these data.",
  BURIAL_REFUSED:
    "A message cannot be put among the dead letters: it does not wait, or somebody has it in hand.",
  CONSUMER_NOT_FOUND: "There is no consumer with this name in the database.",
  CONSUMER_RUNNING: "A consumer cannot be retired, because a worker of it is alive.",

  REQUEST_TIMEOUT: "No reply to a request came in time, so nobody knows whether the command was carried out.",
  REQUEST_FAILED: "The command of a request was given up.",
  REQUEST_IN_TRANSACTION: "A request was made inside a transaction or a handler.",

  SAGA_INVALID: "A saga was defined with a name, step or option that cannot be used.",
  SAGA_UNKNOWN: "A saga, or this version of it, was not registered with the bus.",
  SAGA_DEFINITION_CHANGED:
    "The steps of a saga were changed without a new version, and unfinished instances have steps that it lacks.",
  SAGA_NOT_FOUND: "There is no saga instance with this id.",
  SAGA_ACTION_REFUSED: "What was asked of a saga instance cannot be done in its present state.",
  SAGA_CONFLICT: "A saga instance was changed by somebody else at the same time.",
  SAGA_STATE_TOO_LARGE: "The state of a saga instance would be larger than allowed.",

  PRIVACY_KEYS_MISSING: "Personal data were to be sealed, but there is no key ring.",
  PRIVACY_KEYS_INVALID: "The key ring has keys or names that cannot be used.",
  PRIVACY_KEYS_UNAVAILABLE: "A key that wraps data keys is not at hand, or its keeper does not answer.",
  PRIVACY_SEAL_BROKEN: "A sealed value is not what was sealed, or not where it was.",
  PRIVACY_ERASED: "What was to be opened is about a person who was erased.",
  PRIVACY_SEALED: "What was to be opened is sealed with a key that this process does not have.",
  PRIVACY_SUBJECT_INVALID: "The person whom data are about is not named by a usable text.",
  PRIVACY_SUBJECT_HELD: "A person cannot be erased, because their data are held.",
  PRIVACY_SUBJECT_BUSY: "A person cannot be erased, because sagas about them are still running.",

  FLOW_INVALID: "A flow was declared with events or reactions that cannot be right.",

  LISTEN_FAILED: "The address for health and metrics cannot be listened on.",
  BUS_NOT_RUNNING: "The operation needs a running bus.",
  BUS_STOPPED: "The bus was stopped and accepts no more work.",
  SHUTDOWN_TIMEOUT: "Something was still working when the time for stopping was over.",
  SHUTDOWN_INCOMPLETE: "Something could not be ended as it should, mostly because its server was not there.",
} as const;

export type ErrorCode = keyof typeof catalogue;
