import { ClientLoader } from "../../transport/index.ts";

/** The package amqplib, which is there only if the user has installed it. */
export const amqp = new ClientLoader({
  broker: "RabbitMQ",
  install: ["amqplib@2"],
  load: () => import("amqplib"),
});
