// These tables have no unique constraints on purpose: a repeated effect shows as a second row.
const ledgers = {
  shop_reservation: "sku text not null, quantity integer not null",
  shop_release: "",
  shop_bill: "amount_cents integer not null",
  shop_refund: "",
  shop_shipment: "parcel_id text not null",
  shop_mail: "subject text not null",
};

/** The shop's own tables. */
export const tables = `
  create table if not exists shop_order (
    id          text        primary key,
    customer_id text        not null,
    sku         text        not null,
    quantity    integer     not null,
    placed_at   timestamptz not null default clock_timestamp()
  );
  ${Object.entries(ledgers)
    .map(
      ([name, more]) => `
        create table if not exists ${name} (order_id text not null${more === "" ? "" : `, ${more}`});
        create index if not exists ${name}_order on ${name} (order_id);`,
    )
    .join("")}`;
