interface Answer {
  readonly status?: string;
}

interface ObservableClient {
  getTransactionStatus(): string | null;
  readonly connection: {
    on(event: "readyForQuery", hear: (answer: Answer) => void): unknown;
    removeListener(event: "readyForQuery", hear: (answer: Answer) => void): unknown;
  };
}

/**
 * Calls back when the open transaction of a caller's `pg` client has ended, be it by COMMIT or by ROLLBACK. False when
 * this client cannot tell.
 */
export function onTransactionEnd(client: object, told: () => void): boolean {
  if (!isObservable(client) || client.getTransactionStatus() !== "T") return false;
  const { connection } = client;
  const onReady = ({ status }: Answer): void => {
    if (status !== "I") return;
    connection.removeListener("readyForQuery", onReady);
    told();
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
