import { envelopeVersion, type Message } from "./message.ts";

/** Who defines an attribute: CloudEvents, one of its documented extensions, or sagabox. */
type Origin = "CloudEvents" | "documented extension" | "sagabox";

interface AttributeEntry {
  readonly origin: Origin;
  readonly meaning: string;
  /** Returns null if the message does not have the attribute. */
  readonly of: (message: Message) => string | number | null;
}

/**
 * All attributes of a message as a CloudEvent, in the order in which they are written. Names consist of at
 * most 20 lower-case letters and digits, as the specification requires. Names of our own start with
 * `sagabox`, so they cannot collide with other extensions.
 */
export const cloudEventAttributes = {
  specversion: { origin: "CloudEvents", meaning: "always `1.0`", of: () => "1.0" },
  id: { origin: "CloudEvents", meaning: "the message's id", of: ({ id }) => id },
  source: {
    origin: "CloudEvents",
    meaning: "the service that published it, as a path: `/orders`",
    of: ({ source }) => toSourcePath(source),
  },
  type: { origin: "CloudEvents", meaning: "the name of the contract", of: ({ type }) => type },
  time: { origin: "CloudEvents", meaning: "when it was published", of: ({ writtenAt }) => writtenAt },
  subject: {
    origin: "CloudEvents",
    meaning: "the id of the aggregate it is about",
    of: ({ aggregateId }) => aggregateId,
  },
  datacontenttype: {
    origin: "CloudEvents",
    meaning: "always `application/json`",
    of: () => "application/json",
  },
  partitionkey: {
    origin: "documented extension",
    meaning: "the key whose messages keep their order",
    of: ({ key }) => key,
  },
  correlationid: {
    origin: "documented extension",
    meaning: "shared by all messages of one business process",
    of: ({ correlationId }) => correlationId,
  },
  causationid: {
    origin: "documented extension",
    meaning: "the message that led to this one",
    of: ({ causationId }) => causationId,
  },
  traceparent: {
    origin: "documented extension",
    meaning: "W3C trace context",
    of: ({ traceparent }) => traceparent,
  },
  expirytime: {
    origin: "documented extension",
    meaning: "when the message expires",
    of: ({ expiresAt }) => expiresAt,
  },
  sagaboxversion: {
    origin: "sagabox",
    meaning: "always `1.0`: the event is a message of sagabox, its id is globally unique",
    of: () => envelopeVersion,
  },
  sagaboxkind: { origin: "sagabox", meaning: "`event`, `command` or `stream`", of: ({ kind }) => kind },
  sagaboxtopic: { origin: "sagabox", meaning: "the topic", of: ({ topic }) => topic },
  sagaboxschemaversion: {
    origin: "sagabox",
    meaning: "version of the contract's schema",
    of: ({ schemaVersion }) => schemaVersion,
  },
  sagaboxpriority: { origin: "sagabox", meaning: "0 to 9", of: ({ priority }) => priority },
  sagaboxsaga: { origin: "sagabox", meaning: "id of the saga it belongs to", of: ({ sagaId }) => sagaId },
  sagaboxaggregate: {
    origin: "sagabox",
    meaning: "type of the aggregate",
    of: ({ aggregateType }) => aggregateType,
  },
  sagaboxtarget: { origin: "sagabox", meaning: "the service a command is for", of: ({ target }) => target },
  sagaboxheaders: {
    origin: "sagabox",
    meaning: "the message's headers, as a JSON object in ASCII",
    of: ({ headers }) => headersText(headers),
  },
} as const satisfies Record<string, AttributeEntry>;

const entries = Object.entries<AttributeEntry>(cloudEventAttributes);

/** Returns the attributes of a message. Empty attributes are left out. */
export function toAttributes(message: Message): Record<string, string | number> {
  const attributes: Record<string, string | number> = {};
  for (const [name, { of }] of entries) {
    const value = of(message);
    if (value !== null && value !== "") attributes[name] = value;
  }
  return attributes;
}

function toSourcePath(service: string): string {
  return `/${encodeURIComponent(service)}`;
}

/** Returns the service that `source` names, or undefined if sagabox did not write it. */
export function parseService(source: string): string | undefined {
  try {
    const service = decodeURIComponent(source.slice(1));
    return service !== "" && toSourcePath(service) === source ? service : undefined;
  } catch {
    return undefined;
  }
}

// Attributes must not hold control characters, and some brokers accept only ASCII in headers.
function headersText(headers: Message["headers"]): string | null {
  if (Object.keys(headers).length === 0) return null;
  return JSON.stringify(headers).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
