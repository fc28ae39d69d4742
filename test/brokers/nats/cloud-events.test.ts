import { headers as natsHeaders } from "@nats-io/transport-node";
import type { JetStreamManager } from "@nats-io/jetstream";
import { HTTP, type CloudEventV1 } from "cloudevents";
import { describe } from "vitest";
import { fromNatsHeaders } from "../../../src/transports/nats/header-mapping.ts";
import { messageSubject, streamNames } from "../../../src/transports/nats/topology.ts";
import {
  cloudEventSdkSuite,
  cloudEventSuite,
  cloudEventTopic,
  type RawCopy,
} from "../../support/cloud-event-suite.ts";
import { connectClient, missing, newPrefix, sharedUrl, createTransport } from "./harness.ts";

describe.skipIf(missing)("CloudEvents at NATS", () => {
  cloudEventSuite(() => {
    const prefix = newPrefix();
    const looking = connectClient();
    return {
      prefix: "ce-",
      transport: (format) => createTransport({ servers: sharedUrl, prefix, format }),
      putForeign: async ({ body, headers, contentType = "" }) => {
        const written = natsHeaders();
        for (const [name, value] of Object.entries(headers)) written.append(name, value);
        if (contentType.startsWith("application/cloudevents")) written.append("Content-Type", contentType);
        const { js } = await looking;
        await js.publish(messageSubject(prefix, cloudEventTopic, 0), body, { headers: written });
      },
      deadLetters: async () => readCopies((await looking).jsm, streamNames(prefix).dead),
    };
  });

  // The SDK has no binding for NATS; that of HTTP has the same names.
  cloudEventSdkSuite(() => {
    const prefix = newPrefix();
    const looking = connectClient();
    return {
      transport: (format) => createTransport({ servers: sharedUrl, prefix, format }),
      readBySdk: async () =>
        (await readCopies((await looking).jsm, streamNames(prefix).messages)).map(({ body, headers }) => {
          const type = { "content-type": headers["content-type"] ?? "application/json" };
          const message = { headers: { ...headers, ...type }, body: Buffer.from(body).toString() };
          return HTTP.toEvent(message) as CloudEventV1<unknown>;
        }),
    };
  });
});

async function readCopies({ streams }: JetStreamManager, stream: string): Promise<readonly RawCopy[]> {
  const { state } = await streams.info(stream);
  const found = Array.from({ length: state.messages }, (_, n) =>
    streams.getMessage(stream, { seq: state.first_seq + n }),
  );
  return (await Promise.all(found)).flatMap((copy) =>
    copy === null ? [] : [{ body: copy.data, headers: fromNatsHeaders(copy.header) }],
  );
}
