import { envelopeVersion } from "./envelope.ts";
import type { Message } from "./message.ts";

/** Whose word an attribute is: CloudEvents itself, one of its documented extensions, or ours. */
type Origin = "CloudEvents" | "documented extension" | "sagabox";

interface AttributeEntry {
  readonly origin: Origin;
  readonly meaning: string;
  /** Null leaves the attribute out. */
  readonly of: (message: Message) => string | number | null;
}

/**
 * Every attribute that a message of ours has as a CloudEvent, in the order they are written. Names are lower-case
 * letters and digits, at most 20, as the specification wants them; what has no common name begins with ours, so that
 * it cannot be taken for somebody else's.
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
    meaning: "what belongs to one business process",
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
    meaning: "from when on nobody needs it",
    of: ({ expiresAt }) => expiresAt,
  },
  sagaboxversion: {
    origin: "sagabox",
    meaning: "always `1.0`: the event is a message of sagabox, its id unique in the whole world",
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

/** The attributes of a message; those it has nothing for are left out. */
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

/** The service that `source` names, or undefined when it was not written by us. */
export function parseService(source: string): string | undefined {
  try {
    const service = decodeURIComponent(source.slice(1));
    return service !== "" && toSourcePath(service) === source ? service : undefined;
  } catch {
    return undefined;
  }
}

// Attributes must not hold control characters, and not every broker carries more than ASCII in a header.
function headersText(headers: Message["headers"]): string | null {
  if (Object.keys(headers).length === 0) return null;
  return JSON.stringify(headers).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
