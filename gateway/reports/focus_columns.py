"""The columns of our FOCUS 1.3 dataset in the order of the specification, own ones (`x_`) last, and the grouping."""

from collections.abc import Mapping

from gateway.reports.tables import Cell, columns_of
from gateway.sums import Dimension

VERSION = "1.3"
GROUP_BY: tuple[Dimension, ...] = (
    "day",
    "team",
    "project",
    "key",
    "tags",
    "operation",
    "model",
    "backend",
    "provider",
    "upstream_model",
    "is_simulated",
)
COLUMNS = columns_of(
    (
        ("BilledCost", "decimal"),
        ("BillingAccountId", "text"),
        ("BillingAccountName", "text"),
        ("BillingCurrency", "text"),
        ("BillingPeriodEnd", "time"),
        ("BillingPeriodStart", "time"),
        ("CapacityReservationId", "text"),
        ("CapacityReservationStatus", "text"),
        ("ChargeCategory", "text"),
        ("ChargeClass", "text"),
        ("ChargeDescription", "text"),
        ("ChargeFrequency", "text"),
        ("ChargePeriodEnd", "time"),
        ("ChargePeriodStart", "time"),
        ("ConsumedQuantity", "decimal"),
        ("ConsumedUnit", "text"),
        ("ContractedCost", "decimal"),
        ("ContractedUnitPrice", "price"),
        ("EffectiveCost", "decimal"),
        ("HostProviderName", "text"),
        ("InvoiceIssuerName", "text"),
        ("ListCost", "decimal"),
        ("ListUnitPrice", "price"),
        ("PricingCategory", "text"),
        ("PricingQuantity", "decimal"),
        ("PricingUnit", "text"),
        ("ProviderName", "text"),
        ("PublisherName", "text"),
        ("ResourceId", "text"),
        ("ResourceName", "text"),
        ("ResourceType", "text"),
        ("ServiceCategory", "text"),
        ("ServiceName", "text"),
        ("ServiceProviderName", "text"),
        ("ServiceSubcategory", "text"),
        ("SkuId", "text"),
        ("SkuMeter", "text"),
        ("SkuPriceDetails", "text"),
        ("SkuPriceId", "text"),
        ("SubAccountId", "text"),
        ("SubAccountName", "text"),
        ("SubAccountType", "text"),
        ("Tags", "text"),
        ("x_Backend", "text"),
        ("x_EstimatedRequests", "integer"),
        ("x_InputTokens", "integer"),
        ("x_IsSimulated", "boolean"),
        ("x_KeyId", "text"),
        ("x_Model", "text"),
        ("x_Operation", "text"),
        ("x_OutputTokens", "integer"),
        ("x_Project", "text"),
        ("x_UnpricedRequests", "integer"),
    )
)
EMPTY: Mapping[str, Cell] = dict.fromkeys((column.name for column in COLUMNS), None)
