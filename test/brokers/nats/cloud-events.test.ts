import { headers as natsHeaders } from "@nats-io/transport-node";
import { describe } from "vitest";
import { fromNatsHeaders } from "../../../src/transports/nats/header-mapping.ts";
import { messageSubject } from "../../../src/transports/nats/topology.ts";
import { cloudEventStory, cloudEventTopic } from "../../support/cloud-event-story.ts";
import { client, missing, newPrefix, sharedUrl, transportOf } from "./harness.ts";

describe.skipIf(missing)("CloudEvents at NATS", () => {
  cloudEventStory(() => {
    const prefix = newPrefix();
    const looking = client();
    return {
      prefix: "ce-",
      transport: (format) => transportOf({ servers: sharedUrl, prefix, format }),
      putForeign: async ({ body, headers, contentType = "" }) => {
        const written = natsHeaders();
        for (const [name, value] of Object.entries(headers)) written.append(name, value);
        if (contentType.startsWith("application/cloudevents")) written.append("Content-Type", contentType);
        const { js } = await looking;
        await js.publish(messageSubject(prefix, cloudEventTopic, 0), body, { headers: written });
      },
      deadLetters: async () => {
        const { jsm } = await looking;
        const { state } = await jsm.streams.info(`${prefix}_dead`);
        const kept = Array.from({ length: state.messages }, (_, n) =>
          jsm.streams.getMessage(`${prefix}_dead`, { seq: state.first_seq + n }),
        );
        return (await Promise.all(kept)).flatMap((letter) =>
          letter === null ? [] : [{ body: letter.data, headers: fromNatsHeaders(letter.header) }],
        );
      },
    };
  });
});
