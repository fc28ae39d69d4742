import { SagaboxError } from "../errors/index.ts";
import { replyTopicFor } from "../message/index.ts";
import type { AwaitedEvent } from "./registry.ts";
import { sagaReplies } from "./saga-command.ts";

/** As many characters as the name of a consumer group may have in the database. */
const MAX_NAME_LENGTH = 255;

/** Who hears the replies to the commands of a service's sagas. Named after it: others wait for replies of their own. */
export function replyConsumer(service: string): string {
  const topic = replyTopicFor(sagaReplies(service));
  return topic.slice(topic.indexOf(".") + 1);
}

/** Who hears an event for a saga of a service. */
export function eventConsumer(service: string, event: string, saga: string): string {
  return `${replyConsumer(service)}.${event}.${saga}`;
}

/** Refuses, while somebody still looks, names that the database would refuse when the bus runs. */
export function checkEventConsumers(service: string, awaited: readonly AwaitedEvent[]): void {
  for (const { event, sagas } of awaited) {
    for (const saga of sagas.keys()) {
      const consumer = eventConsumer(service, event.name, saga);
      if (consumer.length > MAX_NAME_LENGTH) throw tooLong(consumer, event.name, saga);
    }
  }
}

function tooLong(consumer: string, event: string, saga: string): SagaboxError {
  return new SagaboxError(
    "SAGA_INVALID",
    `Saga "${saga}" waits for "${event}", and would hear it as the consumer "${consumer}", whose name has ` +
      `${consumer.length} characters; ${MAX_NAME_LENGTH} are allowed. Shorten the name of the service, the event or the saga.`,
  );
}
