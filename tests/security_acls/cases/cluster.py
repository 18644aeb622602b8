"""What takes a right on the cluster, or none."""

from tests.security_acls.matrix import OP, TOPIC, c, case
from tests.security_acls.scene import ANY_ACL, Right

case("api versions", "ApiVersions", {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"}, until=1)
case("describe cluster", "DescribeCluster", {"IncludeClusterAuthorizedOperations": True}, [c(OP.ALTER)], [c(OP.CREATE)])
_NOBODY = {"ResourceTypeFilter": 2, "ResourceNameFilter": "nothing", "PrincipalFilter": "User:nobody"}
case("describe acls", "DescribeAcls", {**ANY_ACL, **_NOBODY}, [c(OP.DESCRIBE)])
case(
    "create acls",
    "CreateAcls",
    lambda n, v: {"Creations": [Right(OP.READ, TOPIC, n.topic).creation("nobody")]},
    [c(OP.DESCRIBE)],
    [c(OP.ALTER)],
)
case("delete acls", "DeleteAcls", {"Filters": [{**ANY_ACL, **_NOBODY}]}, [c(OP.ALTER)])
case(
    "describe log dirs",
    "DescribeLogDirs",
    lambda n, v: {"Topics": [{"Topic": n.topic, "Partitions": [0]}]},
    [c(OP.DESCRIBE)],
)
case(
    "elect leaders",
    "ElectLeaders",
    lambda n, v: {"ElectionType": 0, "TopicPartitions": [{"Topic": n.topic, "Partitions": [0]}], "TimeoutMs": 5000},
    [c(OP.ALTER)],
)
case(
    "alter partition reassignments",
    "AlterPartitionReassignments",
    lambda n, v: {
        "TimeoutMs": 5000,
        "Topics": [{"Name": n.topic, "Partitions": [{"PartitionIndex": 0, "Replicas": None}]}],
    },
    [c(OP.ALTER)],
)
case(
    "alter replica log dirs",
    "AlterReplicaLogDirs",
    lambda n, v: {"Dirs": [{"Path": "/no/such/directory", "Topics": [{"Name": n.topic, "Partitions": [0]}]}]},
    [c(OP.ALTER)],
)
case(
    "list partition reassignments", "ListPartitionReassignments", {"TimeoutMs": 5000, "Topics": None}, [c(OP.DESCRIBE)]
)
case("describe client quotas", "DescribeClientQuotas", {"Components": [], "Strict": False}, [c(OP.DESCRIBE_CONFIGS)])
case(
    "alter client quotas",
    "AlterClientQuotas",
    {
        "Entries": [
            {
                "Entity": [{"EntityType": "user", "EntityName": "nobody"}],
                "Ops": [{"Key": "request_percentage", "Value": 50.0, "Remove": False}],
            }
        ],
        "ValidateOnly": True,
    },
    [c(OP.ALTER_CONFIGS)],
    until=1,
)
case(
    "update features",
    "UpdateFeatures",
    {
        "timeoutMs": 5000,
        "ValidateOnly": True,
        "FeatureUpdates": [{"Feature": "no.such.feature", "MaxVersionLevel": 1, "UpgradeType": 1}],
    },
    [c(OP.ALTER)],
)
case(
    "describe user scram credentials", "DescribeUserScramCredentials", {"Users": [{"Name": "nobody"}]}, [c(OP.DESCRIBE)]
)
case(
    "alter user scram credentials",
    "AlterUserScramCredentials",
    {"Deletions": [{"Name": "nobody", "Mechanism": 1}], "Upsertions": []},
    [c(OP.ALTER)],
)
