interface Answer {
  readonly status?: string;
}

interface ObservableClient {
  getTransactionStatus(): string | null;
  readonly connection: {
    on(event: "readyForQuery", listener: (answer: Answer) => void): unknown;
    removeListener(event: "readyForQuery", listener: (answer: Answer) => void): unknown;
  };
}

/**
 * Calls the listener when the open transaction of a caller's `pg` client ends, by COMMIT or by ROLLBACK. Returns false if
 * the client does not report the end.
 */
export function onTransactionEnd(client: object, listener: () => void): boolean {
  if (!isObservable(client) || client.getTransactionStatus() !== "T") return false;
  const { connection } = client;
  const onReady = ({ status }: Answer): void => {
    if (status !== "I") return;
    connection.removeListener("readyForQuery", onReady);
    listener();
  };
  connection.on("readyForQuery", onReady);
  return true;
}

function isObservable(client: object): client is ObservableClient {
  const { connection, getTransactionStatus } = client as Partial<ObservableClient>;
  return (
    typeof getTransactionStatus === "function" &&
    typeof connection?.on === "function" &&
    typeof connection.removeListener === "function"
  );
}
