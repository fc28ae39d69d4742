/** Every error code, with one sentence about what happened. Repeated in docs/reference/errors.md. */
export const catalogue = {
  OPTIONS_INVALID: "An option has a value that cannot be used.",
  OPTIONS_UNKNOWN_KEY: "An options object has a key that does not exist.",
  ENVIRONMENT_INVALID: "One or more environment variables have values that cannot be used.",
  APP_MODULE_INVALID: "The application module does not export what the command needs.",

  CONTRACT_INVALID: "A message contract was defined with a name, version or option that cannot be used.",
  TOPIC_INVALID: "A topic has characters or a length that not every transport can carry.",
  KEY_INVALID: "A message key is not a string of acceptable length.",
  MESSAGE_ID_INVALID: "A message id is not a string of acceptable length.",
  HEADER_INVALID: "A header has a name or value that not every transport can carry.",
  ENVELOPE_INVALID: "A received message is not a readable envelope.",
  CLOUD_EVENT_INVALID:
    "A received CloudEvent breaks the rules of CloudEvents 1.0, or holds data that is neither JSON nor text.",

  PAYLOAD_NOT_JSON: "The payload holds a value that JSON cannot carry unchanged.",
  PAYLOAD_NOT_REPEATABLE:
    "Neither the output nor the input of a schema with transforms can be sent: validating it gives other data.",
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
  CLAIM_MISSING: "The object that a reference names is missing from its store.",
  CLAIM_CORRUPT: "The content of the store differs from what was stored.",
  CLAIM_STORE_UNKNOWN: "A reference names a store that this bus does not have.",
  CLAIM_STORE_UNAVAILABLE: "A store of large payloads cannot be reached, is too slow or refuses the request.",
  CLAIM_STORE_FULL: "A store of large payloads has no space left.",
  CLAIM_SOURCE_FAILED: "The stream of an attachment failed; its error is the cause.",

  NOT_IN_TRANSACTION: "Something was published outside an open transaction.",
  TRANSACTION_ABORTED: "The transaction had already failed, so its commit became a rollback.",
  TRANSACTION_CLOSED: "A transaction was used after it had ended, or SQL inside it ended it or tried to.",
  TRANSACTION_COMMITTED:
    "SQL inside a transaction committed it early, so it can be neither finished nor retried.",
  COMMIT_UNKNOWN:
    "The connection was lost during COMMIT, so it is unknown whether the transaction was committed.",

  SCHEMA_NAME_INVALID: "The name of the database schema cannot be used.",
  STORAGE_NOT_MIGRATED: "The database schema lacks the tables of this version.",
  STORAGE_TOO_NEW: "The database schema was migrated by a newer, incompatible version.",
  STORAGE_PERMISSION_DENIED: "The database role lacks a right that the operation needs.",
  STORAGE_ENCODING_UNSUPPORTED: "The database has another encoding than UTF8.",
  STORAGE_POOLER_UNSUPPORTED: "A connection pooler gives this process another session for each transaction.",
  STORAGE_CLIENT_TOO_OLD: "The `pg` package is older than this version can work with.",
  STORAGE_UNAVAILABLE: "The database cannot be reached or does not answer.",
  STORAGE_READ_ONLY: "The database refused to write: it is a standby, or read-only.",
  STORAGE_SCHEMA_MISMATCH: "The database schema was created by migrations of another build.",
  STORAGE_MIGRATION_FAILED: "A migration failed and was rolled back.",
  EMBEDDED_POSTGRES_FAILED: "The embedded PostgreSQL server could not be started.",

  OUTBOX_FULL: "The outbox holds as many unsent messages as its limit allows.",
  OUTBOX_LEASE_LOST: "Another relay took over the lane before the result was recorded.",
  OUTBOX_ILLEGAL_MOVE: "A message cannot move from its state to the requested one.",
  MESSAGE_NOT_FOUND: "There is no message with this id in the database.",
  MESSAGE_EXPIRED: "The time to live of a message ended before it was delivered.",

  TRANSPORT_CLIENT_MISSING: "The package that talks to the broker or store is not installed.",
  TRANSPORT_UNREACHABLE: "The broker cannot be reached.",
  TRANSPORT_UNROUTABLE: "The broker has no destination for the message.",
  TRANSPORT_REJECTED: "The broker refused the message.",
  TRANSPORT_TIMEOUT: "The broker did not confirm in time, so it is unknown whether the message arrived.",
  TRANSPORT_CANNOT_REPLAY: "The transport cannot start reading at a point in time.",

  HANDLER_TIMEOUT: "A handler did not finish within its time.",
  HANDLER_FAILED: "A handler threw something that is not an error.",
  HANDLER_MISSING: "No handler is registered for the message.",
  HANDLER_DUPLICATE: "Two handlers are registered for the same consumer and message.",
  HANDLER_TOO_LATE: "A handler was registered after the consumers had started.",
  MESSAGE_ID_MISSING: "A received message has no id, so it cannot be handled exactly once.",
  MESSAGE_KILLS_PROCESS: "The process died repeatedly while it handled only this message.",
  DEAD_LETTER_NOT_FOUND: "There is no dead letter with this id.",
  DEAD_LETTER_CLOSED: "The dead letter was already replayed or discarded.",
  DEAD_LETTER_EDIT_REFUSED: "A dead letter cannot be replayed with these data.",
  BURIAL_REFUSED: "A message cannot be dead-lettered, because it does not wait or is in flight.",
  CONSUMER_NOT_FOUND: "There is no consumer with this name in the database.",
  CONSUMER_RUNNING: "A consumer cannot be retired, because one of its workers is running.",

  REQUEST_TIMEOUT: "No reply to a request came in time, so it is unknown whether the command was executed.",
  REQUEST_FAILED: "The command of a request failed permanently.",
  REQUEST_IN_TRANSACTION: "A request was made inside a transaction or a handler.",

  SAGA_INVALID: "A saga was defined with a name, step or option that cannot be used.",
  SAGA_UNKNOWN: "A saga, or this version of it, was not registered with the bus.",
  SAGA_DEFINITION_CHANGED:
    "The steps of a saga were changed without a new version, and unfinished instances have steps that are missing now.",
  SAGA_NOT_FOUND: "There is no saga instance with this id.",
  SAGA_ACTION_REFUSED: "The action is not possible in the present state of the saga instance.",
  SAGA_CONFLICT: "A saga instance was changed by another worker or operator at the same time.",
  SAGA_RESULT_TIMEOUT: "A saga did not end within the time that a caller waited for its result.",
  SAGA_STATE_TOO_LARGE: "The state of a saga instance would be larger than allowed.",

  PRIVACY_KEYS_MISSING: "Personal data must be encrypted, but there is no key ring.",
  PRIVACY_KEYS_INVALID: "The key ring has keys or names that cannot be used.",
  PRIVACY_KEYS_UNAVAILABLE: "A key-encryption key is missing, or the service that holds it does not answer.",
  PRIVACY_SEAL_BROKEN: "An encrypted value was changed or moved.",
  PRIVACY_ERASED: "A value cannot be decrypted, because its data subject was erased.",
  PRIVACY_SEALED: "A value is encrypted with a key that this process does not have.",
  PRIVACY_SUBJECT_INVALID: "The name of a data subject is not a usable string.",
  PRIVACY_SUBJECT_HELD: "A data subject cannot be erased, because of a legal hold.",
  PRIVACY_SUBJECT_BUSY: "A data subject cannot be erased, because sagas about them are still running.",

  FLOW_INVALID: "A flow was declared with events or reactions that contradict each other.",

  LISTEN_FAILED: "The server for health and metrics cannot listen on its address.",
  BUS_NOT_RUNNING: "The operation needs a running bus.",
  BUS_STOPPED: "The bus was stopped and accepts no more work.",
  SHUTDOWN_TIMEOUT: "Work was still running when the shutdown timeout passed.",
  SHUTDOWN_INCOMPLETE: "A part could not be stopped cleanly, mostly because its server was unreachable.",
} as const;

export type ErrorCode = keyof typeof catalogue;
